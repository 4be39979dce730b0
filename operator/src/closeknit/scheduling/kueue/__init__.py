"""Jobs in Kueue's queues: quota first, then a place.

Invariant: no job gets GPUs that Kueue has not admitted, and none loses GPUs because Kueue cannot be read.
"""
