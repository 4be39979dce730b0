"""Sizes of an elastic job: which it may have, which fits, from when on it makes do with fewer, and who goes first.

Invariant: every size keeps the groups of its ranks whole.
"""
