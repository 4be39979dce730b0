"""`closeknit explain`: why a job waits, or why it sits where it sits; and the one thing to do.

Invariant: it repeats what the operator has decided, and decides nothing.
"""
