"""One node as placement sees it: what is free, who holds the rest, why it is excluded.

Invariant: a NodeView is a function of the objects about its node.
"""
