"""The levels of the network between nodes, named or found by labels.

Invariant: a domain is inside one domain of each outer level.
"""
