"""Kubernetes objects as one value, the Cluster: who holds which GPU, what is left out and why. Pure."""
