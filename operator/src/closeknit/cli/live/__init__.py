"""A running cluster, reached as kubectl does.

Invariant: read only.
"""
