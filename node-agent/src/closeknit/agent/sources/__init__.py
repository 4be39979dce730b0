"""What an agent reads from: this machine, a dump, a profile, a fleet file.

Invariant: a source reads; what it reads means nothing yet.
"""
