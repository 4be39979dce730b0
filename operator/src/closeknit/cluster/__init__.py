"""Kubernetes objects as one value, the Cluster: who holds which GPU, which nodes are excluded and why. Pure.

Invariant: the Cluster after a batch of events equals one built from scratch.
"""
