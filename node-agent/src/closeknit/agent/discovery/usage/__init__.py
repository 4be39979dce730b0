"""Which container holds which GPUs, and over which paths its data moves.

Invariant: a path is named once its counters have moved, and never taken back.
"""
