"""The attempt of a job that holds GPUs: its Pods, claims, and leftovers of older attempts.

Invariant: only the job's own objects are touched.
"""
