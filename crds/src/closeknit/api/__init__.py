"""The contract between people, operator and agent: the three kinds, their names and units. Pure.

Invariant: every string, list and map has a bound.
"""
