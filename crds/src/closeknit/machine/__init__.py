"""One machine as a graph: GPUs, NVLinks, PCIe tree, NICs; its islands, class and labels. Pure, for agent and operator."""
