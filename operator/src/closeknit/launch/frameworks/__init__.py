"""The launch contract of each framework: what its processes find, and which of them end the job.

Invariant: a framework is one file and one row of the registry.
"""
