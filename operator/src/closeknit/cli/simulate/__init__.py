"""`closeknit simulate`: a trace of jobs on a cluster of a file.

Invariant: the decisions are the operator's own.
"""
