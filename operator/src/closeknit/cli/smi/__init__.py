"""Pasted output of `nvidia-smi topo -m`, and the machine that it shows. Pure.

Invariant: a contradictory table is refused with its cell.
"""
