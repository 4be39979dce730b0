"""Values that share unchanged parts: tables, interned machines, heartbeats.

Invariant: shared read-only by all versions of a Cluster.
"""
