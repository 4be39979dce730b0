"""What readings of a machine mean: pure, the same for hardware, dumps and simulated machines."""
