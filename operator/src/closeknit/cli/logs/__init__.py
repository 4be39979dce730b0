"""`closeknit logs`: what ranks of a job print.

Invariant: a log of any length and any line passes in a bounded room.
"""
