"""The node agent: reads one machine and publishes what it read.

Invariant: it writes only its own Node's labels and its own NodeTopology.
"""
