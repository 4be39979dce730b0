"""The door to NVML: the driver in a process that may die.

Invariant: only modules of this folder import pynvml.
"""
