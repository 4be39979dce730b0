"""The cheapest way to spread a gang's shares over the tree of domains.

Invariant: exact within a budget of steps; past it bounded, and said.
"""
