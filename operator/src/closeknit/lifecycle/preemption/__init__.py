"""What a preemption writes: the booking of the job that others make room for, and the end of these others.

Invariant: the first is stored before the second begins, so that an operator that starts anew reads from it who goes.
"""
