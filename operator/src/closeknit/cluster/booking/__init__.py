"""What jobs hold by their status: bookings, shares, parameter servers.

Invariant: the one place that knows a booking's wire form.
"""
