"""Raw readings of one machine as values, and substitutes where one failed.

Invariant: no conclusion is drawn here.
"""
