"""`closeknit jobs`, and what is read of a job where its words are enough.

Invariant: it reads jobs without their templates, and models nothing twice that a decision needs.
"""
