"""The operator's process: kopf shell, scheduling loop, metrics, health.

Invariant: one loop is the only writer; a handler only wakes it.
"""
