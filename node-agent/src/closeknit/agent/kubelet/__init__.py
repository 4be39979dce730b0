"""The kubelet as a source: who holds which GPUs.

Invariant: unknown fields are skipped; a missing answer is no fact.
"""
