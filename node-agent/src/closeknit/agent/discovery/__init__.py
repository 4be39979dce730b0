"""The meaning of a machine's readings. Pure.

Invariant: the same for hardware, dumps and simulated machines.
"""
