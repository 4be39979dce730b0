"""Text from outside: JSON of any depth, quantities, durations, and strings that are safe to print.

Invariant: every reader is bounded, whatever the bytes.
"""
