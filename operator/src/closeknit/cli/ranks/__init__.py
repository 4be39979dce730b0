"""`closeknit ranks`: which rank has which GPU, and what its Pod does.

Invariant: a booking is read by the operator's own code.
"""
