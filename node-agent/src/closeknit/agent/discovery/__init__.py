"""What readings of a machine mean. Pure.

Invariant: the same for hardware, dumps and simulated machines.
"""
