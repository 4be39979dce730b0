"""The attempt of a job that holds GPUs: its Pods, claims, and what is left of older ones.

Invariant: nothing that the job does not own is touched.
"""
