"""One node as placement sees it: what is free, who holds the rest, why it is left out.

Invariant: a NodeView is a function of the objects that speak of its node.
"""
