"""Asking autoscalers for nodes: for which jobs, in which shape, and for how long.

Invariant: nothing is asked for that placement would refuse with those nodes there.
"""
