"""The bandwidth of an all-reduce over a set of GPUs: NCCL's paths, rings and their bounds.

Invariant: a function of the machine graph alone.
"""
