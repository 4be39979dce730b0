"""The environment of each rank: NCCL, RDMA, NUMA, and what the user's own values change.

Invariant: the user's value wins, and the skip is recorded.
"""
