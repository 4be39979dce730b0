"""Results of one decision for the next, so that nothing is decided twice.

Invariant: memory changes no verdict, but for the six exceptions that `schedule` names.
"""
