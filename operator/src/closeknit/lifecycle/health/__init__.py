"""Faults of a gang: why its Pods do not start, end, or run slowly.

Invariant: each finding names whose fault it is.
"""
