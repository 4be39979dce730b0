"""Elastic jobs: they start with the GPUs that are there, and grow where there has been room for a while.

Invariant: no job grows past one of its priority or a higher one that waits for room.
"""
