"""The operator's writes, in the order of a Plan.

Invariant: it reports what happened and judges nothing.
"""
