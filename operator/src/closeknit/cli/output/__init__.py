"""Output: pipes that close early, full disks, interrupted terminals.

Invariant: a failed output causes no traceback.
"""
