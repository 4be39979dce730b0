"""Values that share what did not change: tables, interned machines, heartbeats.

Invariant: shared read-only by all versions of a Cluster.
"""
