"""Why a gang does not fit: the first demand that cannot be met, with its numbers.

Invariant: every number comes from a search or a count of this very cluster.
"""
