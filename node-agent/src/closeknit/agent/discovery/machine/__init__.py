"""One machine from its readings: NVLink, PCIe levels, NICs, CPUs.

Invariant: nothing is guessed: an unreadable fact is absent.
"""
