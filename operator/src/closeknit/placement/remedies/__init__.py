"""What would make a gang fit that does not: changes of the job, GPUs and CPUs to free.

Invariant: nothing is proposed that was not placed again.
"""
