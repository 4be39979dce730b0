"""A running cluster as kubectl would reach it.

Invariant: read only.
"""
