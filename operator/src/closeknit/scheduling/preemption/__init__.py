"""Room for a job of high priority: who of lower priority makes it, and for whom what they leave is held.

Invariant: nobody goes unless the job then fits, and fits into nothing that becomes free without.
"""
