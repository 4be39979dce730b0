"""Which nodes, which GPUs, which ranks, and why not. Pure: place(cluster, request) -> Placement | NoFit."""
