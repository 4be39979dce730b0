"""What the web map shows, as rows, and what changes between two moments, as bytes. Pure.

Invariant: a reader without the right to list a job gets no word of it, only numbers.
"""
