"""Offers of each group of nodes to one kind of request.

Invariant: a node that the request cannot use is no candidate, and the reason is counted.
"""
