"""Files as people give them: YAML, JSON, Lists, standard input.

Invariant: bad input is told with its file and line, and costs no traceback.
"""
