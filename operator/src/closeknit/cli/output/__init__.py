"""Where answers go: pipes that close early, disks that are full, terminals that are interrupted.

Invariant: a command ends without a traceback, whatever becomes of its output.
"""
