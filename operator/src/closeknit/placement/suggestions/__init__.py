"""Changes that make a refused gang fit: of the job, or GPUs and CPUs to free.

Invariant: every proposal was placed again.
"""
