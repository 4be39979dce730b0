"""The queue as values: each job in its place, its inputs, the room before it, and its outcome.

Invariant: equal inputs are one object, so comparison by identity shows changes.
"""
