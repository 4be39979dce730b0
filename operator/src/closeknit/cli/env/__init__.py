"""`closeknit env`: the variables of a job's trainers, and why.

Invariant: it prints what launch writes, never a copy of its rules.
"""
