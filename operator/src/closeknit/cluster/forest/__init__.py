"""Nodes as placement counts them: alike nodes as groups, in the tree of domains.

Invariant: the forest after a batch of events equals the one that is built from scratch.
"""
