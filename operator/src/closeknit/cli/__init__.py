"""The `closeknit` command.

Invariant: a folder is a command; the operator's own functions decide.
"""
