"""The inputs of an agent: this machine, a dump, a profile, a fleet file.

Invariant: a source reads and draws no conclusion.
"""
