"""The fate of jobs on a cluster: the operator's decisions on a virtual clock. Pure.

Invariant: no decision reads a simulation.
"""
