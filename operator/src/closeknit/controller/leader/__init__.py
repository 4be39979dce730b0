"""Which of several processes decides and writes.

Invariant: nothing is written without the Lease, nor before all that others wrote was seen.
"""
