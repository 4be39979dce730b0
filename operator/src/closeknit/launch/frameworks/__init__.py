"""The launch contract of each framework: what its processes find and who ends the job.

Invariant: a framework is one file and one row of the registry.
"""
