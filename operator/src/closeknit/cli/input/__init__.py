"""Files as people give them: YAML, JSON, Lists, standard input.

Invariant: an error names file and line, without a traceback.
"""
