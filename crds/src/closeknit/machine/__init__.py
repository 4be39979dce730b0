"""One machine as a graph: GPUs, NVLinks, PCIe tree, NICs; its islands and class. Pure, for agent and operator.

Invariant: equal topology class, equal graph.
"""
