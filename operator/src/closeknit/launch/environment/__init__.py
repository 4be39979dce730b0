"""The environment of each rank: NCCL, RDMA, NUMA, and the user's own values.

Invariant: the user's value wins, and the skip is recorded.
"""
