"""Kubernetes objects as one value, the Cluster: who holds which GPU, what is left out and why. Pure.

Invariant: the Cluster after a batch of events equals the one that is built from scratch.
"""
