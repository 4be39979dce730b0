"""What one machine is: NVLink, PCIe levels, NICs, CPUs, from its readings.

Invariant: nothing is guessed: an unreadable fact is absent.
"""
