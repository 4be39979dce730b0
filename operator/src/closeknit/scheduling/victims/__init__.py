"""Who could make room for a job of higher priority: what that costs each, and the cheapest choice that does.

Invariant: without the chosen ones the job fits, and with any of them back it does not.
"""
