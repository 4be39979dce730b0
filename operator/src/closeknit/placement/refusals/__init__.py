"""Why a gang does not fit: the first unmet demand, with its numbers.

Invariant: every number comes from a search or a count of this cluster.
"""
