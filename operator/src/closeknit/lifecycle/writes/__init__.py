"""What is to be written for a job, and what is learned from how that went.

Invariant: a Plan is a value: applied, and seen again, it gives a Plan that writes nothing.
"""
