"""Faults of each GPU and of the machine, from readings over time.

Invariant: an unreadable fact makes nothing unhealthy.
"""
