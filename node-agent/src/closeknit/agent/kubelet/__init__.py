"""The kubelet as a source: who holds which GPUs.

Invariant: unknown fields are skipped; no answer is no fact.
"""
