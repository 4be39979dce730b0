"""The queue as values: each job in its place, what it is asked with, the room before it, and what came of it.

Invariant: equal inputs are one object, so that a comparison by identity tells what has changed.
"""
