"""The rules that give verdicts, in the order of the table in schedule.py.

Invariant: a policy reads the job, the room and the walk, and writes nothing.
"""
