"""Capacity that is asked of autoscalers for jobs, as the API server shows it. Pure.

Invariant: what is asked for holds nothing.
"""
