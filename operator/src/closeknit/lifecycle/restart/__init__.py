"""Restarts of a gang: who is charged for an end, and whether the gang starts again.

Invariant: what the job has not caused itself is never charged, and never ends it.
"""
