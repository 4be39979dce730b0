"""The next status of a job, for each event.

Invariant: each function returns the whole status, and the stored one where nothing is new.
"""
