"""What `nvidia-smi topo -m` printed, as people paste it, and what it says of the machine. Pure."""
