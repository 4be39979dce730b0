"""A booking is made: GPUs and children for a job, after what quotas and trials say.

Invariant: nothing is made before its booking is stored.
"""
