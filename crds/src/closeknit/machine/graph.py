"""The machine graph: what a NodeTopology says, checked, as matrices by position.

Position p is the p-th GPU by NVML index. Every matrix is square, symmetric and in that order.
"""

from dataclasses import dataclass

from closeknit.api.nodetopology import NodeTopologySpec, PortState, Transport


class InvalidTopology(ValueError):
    """A NodeTopology that contradicts itself; `field` names the place, for example `pcie.levels[2]`."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


@dataclass(frozen=True, slots=True)
class MachineGpu:
    """One GPU; None where the agent could not read a fact."""

    index: int
    uuid: str | None
    pci_address: str
    product: str | None
    architecture: str | None
    compute_capability: tuple[int, int] | None
    memory_bytes: int | None
    numa_node: int | None
    mig_enabled: bool
    link_bandwidth_gb_s: float | None
    pcie_generation: int | None
    pcie_width: int | None


@dataclass(frozen=True, slots=True)
class MachineNic:
    """One port of an RDMA NIC."""

    name: str
    port: int
    transport: Transport
    state: PortState
    rate_gb_s: float | None
    numa_node: int | None
    gpu_levels: tuple[str, ...]
    """PCIe level to each GPU by position; empty where unknown."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine, shared read-only; equal topology_class means equal in everything that placement computes from it."""

    gpus: tuple[MachineGpu, ...]
    links: tuple[tuple[int, ...], ...]
    """Direct NVLinks between positions."""
    switched: bool
    switch_links: tuple[int, ...]
    """Active NVLinks into switches, by position; 0 for a GPU without fabric."""
    levels: tuple[tuple[str, ...], ...]
    """PCIe levels between positions (X PIX PXB PHB NODE SYS); empty where unknown."""
    nics: tuple[MachineNic, ...]
    cpu_model: str | None
    inter_socket_gb_s: float | None
    nvlink_domain: str | None
    """Multi-node NVLink domain as clusterUUID.cliqueID."""
    topology_class: str

    def positions(self, indexes: tuple[int, ...]) -> tuple[int, ...]:
        """Positions of NVML indexes, in their order. Raises KeyError for an index that is not there."""
        at = {gpu.index: position for position, gpu in enumerate(self.gpus)}
        return tuple(at[index] for index in indexes)


def machine(spec: NodeTopologySpec, links_down: tuple[tuple[int, int], ...] = ()) -> Machine:
    """The graph of one machine, less the links that are down, given as (NVML index, link). Raises InvalidTopology."""
    raise NotImplementedError
