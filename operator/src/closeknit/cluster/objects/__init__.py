"""Kubernetes objects in the few fields that decisions need.

Invariant: an unreadable object costs only itself.
"""
