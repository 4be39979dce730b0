"""When a job that waits for room will find it: the ends that running jobs declare, and placement on what they leave.

Invariant: nothing here knows the queue.
"""
