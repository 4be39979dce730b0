"""A booking as Pods: contracts of frameworks, NCCL and RDMA settings, manifests. Pure.

Invariant: the same booking gives the same manifests, byte for byte.
"""
