"""The `closeknit` command.

Invariant: a folder is a command; it decides by the operator's own functions.
"""
