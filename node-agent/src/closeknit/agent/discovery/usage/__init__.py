"""Which container holds which GPUs, and over which paths its data moves.

Invariant: a path counts once its counters have moved, and stays.
"""
