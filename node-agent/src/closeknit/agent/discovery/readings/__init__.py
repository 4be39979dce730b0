"""Raw readings of one machine as values, and those that stand in where one failed.

Invariant: no conclusion is drawn here.
"""
