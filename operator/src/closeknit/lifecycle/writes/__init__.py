"""The next writes for a job, and what their results teach.

Invariant: an applied and seen Plan leads to one that writes nothing.
"""
