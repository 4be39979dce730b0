"""Readings of a simulated machine, derived from its profile.

Invariant: the same profile gives the same readings, byte for byte.
"""
