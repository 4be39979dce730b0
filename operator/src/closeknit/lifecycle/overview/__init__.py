"""The cluster at a glance, in numbers: for gauges, for a status, and for a command.

Invariant: no name of a job or namespace is in it.
"""
