"""What is wrong with a gang: why its Pods do not start, end, or run well.

Invariant: each finding names whose fault it is.
"""
