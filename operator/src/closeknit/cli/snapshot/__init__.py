"""`closeknit snapshot`: a cluster as a file, for a bug report.

Invariant: a field that is not on a list stays out, and a name that somebody has chosen has another one.
"""
