"""What `nvidia-smi topo -m` printed, as people paste it, and what it says of the machine. Pure.

Invariant: a table that contradicts itself is refused with its cell.
"""
