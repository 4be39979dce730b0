"""The status of a job: conditions, pauses, and the words in them.

Invariant: a status that says the stored one again is not written.
"""
