"""The levels of the network between nodes, declared or found by labels.

Invariant: a domain is inside one domain of each outer level.
"""
