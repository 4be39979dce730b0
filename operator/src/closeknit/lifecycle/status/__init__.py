"""The status of a job: conditions, pauses, and the words in them.

Invariant: a status that equals the stored one is not written.
"""
