"""Groups of alike nodes, in the tree of domains.

Invariant: the forest after a batch of events equals one built from scratch.
"""
