"""The node agent: reads one machine and publishes what it read."""
