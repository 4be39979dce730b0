"""Findings about a gang: why its Pods do not start, end, or run slowly. running_gang.py asks for each.

Invariant: each finding names whose fault it is.
"""
