"""All objects by kind, their indexes, and the next version after a batch of changes.

Invariant: indexes follow the objects in one step.
"""
