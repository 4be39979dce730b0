"""The operator's writes, in the order of a Plan.

Invariant: it tells what happened and judges nothing.
"""
