"""Sizes of an elastic job: which it may have, which of them fits, and who goes first where it would grow.

Invariant: every size keeps the groups of its ranks whole.
"""
