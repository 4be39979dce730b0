"""The change of an elastic job's size: one restart with more or fewer GPUs.

Invariant: the end of the old attempt and the booking of the new one are one write.
"""
