"""Readings of a machine that does not exist, derived from its profile.

Invariant: the same profile gives the same readings, byte for byte.
"""
