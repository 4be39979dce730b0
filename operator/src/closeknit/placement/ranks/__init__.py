"""Where each rank runs, and the traffic between ranks.

Invariant: the order is a permutation of the hosts; it changes no booking.
"""
