"""Which rank runs where, and what ranks send to each other.

Invariant: the order is a permutation of the hosts; it changes no booking.
"""
