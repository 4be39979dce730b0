"""What one decision leaves to the next, so that nothing is decided twice.

Invariant: memory changes no verdict.
"""
