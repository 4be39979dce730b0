"""Kubernetes objects in the few fields that decisions need.

Invariant: an object that cannot be read costs itself and nothing else.
"""
