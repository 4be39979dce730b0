"""`closeknit map`: a way from this machine's browser to the operator's web map.

Invariant: it listens on the loopback alone, and adds no credential to what passes.
"""
