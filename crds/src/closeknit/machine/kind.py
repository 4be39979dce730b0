"""The topology class: machines of one class have one graph, so that the second one of a kind costs nothing."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from closeknit.machine.graph import Machine

DIGITS = 12  # 48 bits: even among 10,000 kinds, two share a class in one cluster out of five million


def topology_class(machine: Machine) -> str:
    """A short hash of everything that placement computes bandwidths and orders from.

    Not of names, addresses and sizes: a cluster's thousand nodes of one model share a class although each has its own
    uuids. Bus order counts, because local ranks follow it.
    """
    facts = (
        tuple((gpu.index, gpu.compute_capability, gpu.numa_node, gpu.pcie_generation, gpu.pcie_width)
              for gpu in machine.gpus),
        machine.links,
        machine.switched,
        machine.switch_links,
        machine.levels,
        tuple((str(nic.transport), str(nic.state), nic.rate_gb_s, nic.numa_node, nic.gpu_levels)
              for nic in machine.nics),
        machine.cpu_model,
        machine.inter_socket_gb_s,
        machine.bus_order,
    )  # fmt: skip
    return sha256(repr(facts).encode()).hexdigest()[:DIGITS]
