"""`closeknit simulate`: a trace of jobs on a cluster in a file.

Invariant: the decisions are the operator's own.
"""
