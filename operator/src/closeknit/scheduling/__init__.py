"""The decision over all jobs at once: who gets GPUs, who keeps them, who waits.

Invariant: `schedule` is the only place that gives a verdict.
"""
