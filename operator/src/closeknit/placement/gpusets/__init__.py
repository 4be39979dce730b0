"""Sets of GPUs in one machine: which exist, what each is worth, which one to take.

Invariant: exact up to 16 GPUs within the budget of steps; past it the answer says so.
"""
