"""Bookings in the status of jobs: shares, parameter servers.

Invariant: the one place that knows a booking's wire form.
"""
