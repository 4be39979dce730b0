"""What would become of jobs on a cluster: its decisions on a virtual clock. Pure.

Invariant: nothing decides by a simulation.
"""
