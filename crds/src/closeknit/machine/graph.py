"""The machine graph: what a NodeTopology says, checked, as matrices by position.

Position p is the p-th GPU by NVML index. Every matrix is square, symmetric and in that order.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256

from closeknit.api.nodetopology import C2C, Gpu, Mig, MigMode, NodeTopologySpec, PortState, Support, Transport
from closeknit.machine.checks import InvalidTopology, check, level_rows

__all__ = ["InvalidTopology", "Machine", "MachineGpu", "MachineNic", "machine", "partitioned"]

# Of one link of NVLink-C2C, where the agent could not read it: what GH200 and GB300 say (44,712 MB/s in NCCL's dumps of
# their topology), and Vera Rubin's are faster.
_C2C_LINK_GB_S = 44.712

# 48 bits: even among 10,000 kinds of machine, two share a class in one cluster out of five million.
CLASS_DIGITS = 12


@dataclass(frozen=True, slots=True)
class MachineMig:
    """One MIG device of a GPU."""

    uuid: str
    profile: str
    memory_bytes: int | None


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
    mig_devices: tuple[MachineMig, ...] = ()
    """Those that it is cut into, by uuid; none where it is not in MIG mode."""
    c2c_gb_s: float | None = None
    """NVLink-C2C to its CPU, all links; None where it has none, or if unknown."""


@dataclass(frozen=True, slots=True)
class MachineNic:
    """One port of an RDMA NIC."""

    name: str
    port: int
    transport: Transport
    state: PortState
    rate_gb_s: float | None
    """GB/s per direction (bytes; the wire has Gb/s)."""
    numa_node: int | None
    gpu_levels: tuple[str, ...]
    """PCIe level to each GPU by position; empty where unknown."""
    pci_address: str | None = None
    """As NodeTopology has it, for example 0000:1a:00.0."""
    data_direct: bool = False
    """Whether it reaches GPU memory through a function of its own beside a GPU."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine, shared read-only; equal topology_class means equal in everything that placement computes from it.

    What placement only filters by (product, memory) is no part of the class.
    """

    gpus: tuple[MachineGpu, ...]
    links: tuple[tuple[int, ...], ...]
    """Direct NVLinks between positions."""
    switched: bool
    switch_links: tuple[int, ...]
    """Active NVLinks into switches, by position; 0 for a GPU without fabric."""
    pcie_levels: tuple[tuple[str, ...], ...]
    """PCIe levels between positions (X PIX PXB PHB NODE SYS); empty where unknown."""
    nics: tuple[MachineNic, ...]
    """By name and port."""
    cpu_model: str | None
    inter_socket_gb_s: float | None
    gpu_direct: bool
    """False where what NICs carry for GPUs is known to go through the CPU's memory, without GPUDirect RDMA."""
    nvlink_domain: str | None
    """Multi-node NVLink domain as clusterUUID.cliqueID."""
    bus_order: tuple[int, ...]
    """All positions in PCI-bus order, which is the order in which CUDA shows GPUs inside a container."""
    topology_class: str
    partitions: tuple[int, ...] | None = None
    """Masks of positions, ascending: the only sets of GPUs that a claim can have, where a fabric manager cuts the
    machine; None where it can have any."""

    def positions(self, indexes: tuple[int, ...]) -> tuple[int, ...]:
        """Positions of NVML indexes, in their order. Raises KeyError for an index that is not there."""
        at = {gpu.index: position for position, gpu in enumerate(self.gpus)}
        return tuple(at[index] for index in indexes)

    def in_bus_order(self, positions: Collection[int]) -> tuple[int, ...]:
        """The given positions as local ranks 0, 1, 2, …: in PCI-bus order."""
        chosen = frozenset(positions)
        return tuple(position for position in self.bus_order if position in chosen)


def machine(
    spec: NodeTopologySpec, links_down: tuple[tuple[int, int], ...] = (), nics_down: tuple[str, ...] = ()
) -> Machine:
    """The graph of one machine, less the links that are down, given as (NVML index, link), and the NICs, given by name.

    What is down and not in the spec is ignored: the two are written one after the other. Raises InvalidTopology.
    """
    check(spec)
    order = sorted(range(len(spec.gpus)), key=lambda row: spec.gpus[row].index)
    gpus = tuple(_gpu(spec.gpus[row], spec.nvlink.link_bandwidth_gb_s) for row in order)
    down = Counter(index for index, _ in sorted(set(links_down)))
    lost = tuple(down[gpu.index] for gpu in gpus)
    switch_links = tuple(
        max(0, spec.nvlink.links_per_gpu[row] - lost[position]) if spec.nvlink.switched else 0
        for position, row in enumerate(order)
    )
    rows = level_rows(spec)
    built = Machine(
        gpus=gpus,
        links=_less(_direct_links(spec, gpus), lost),
        switched=spec.nvlink.switched,
        switch_links=switch_links,
        pcie_levels=tuple(tuple(rows[a][b] for b in order) for a in order) if rows else (),
        nics=tuple(sorted(_nics(spec, order, nics_down), key=lambda nic: (nic.name, nic.port))),
        cpu_model=spec.pcie.cpu_model,
        inter_socket_gb_s=spec.pcie.inter_socket_gb_s,
        gpu_direct=spec.capabilities.gpu_direct_rdma is not Support.UNSUPPORTED,
        nvlink_domain=f"{spec.nvlink.domain.cluster_uuid}.{spec.nvlink.domain.clique_id}"
        if spec.nvlink.domain
        else None,
        bus_order=tuple(sorted(range(len(gpus)), key=lambda position: _bus(gpus[position].pci_address))),
        topology_class="",
    )
    return replace(built, topology_class=_topology_class(built))


def partitioned(whole: Machine, partitions: tuple[int, ...] | None) -> Machine:
    """The machine as a fabric manager has cut it: a class of its own, because no other set of its GPUs can be had."""
    if partitions == whole.partitions:
        return whole
    cut = replace(whole, partitions=partitions)
    return replace(cut, topology_class=_topology_class(cut))


def _topology_class(machine: Machine) -> str:
    """A short hash of everything that placement computes bandwidths and orders from.

    Not of names, addresses and sizes: a cluster's thousand nodes of one model share a class although each has its own
    uuids. Bus order counts, because local ranks follow it.
    """
    facts = (
        tuple((gpu.index, gpu.compute_capability, gpu.numa_node, gpu.pcie_generation, gpu.pcie_width, gpu.c2c_gb_s)
              for gpu in machine.gpus),
        machine.links,
        machine.switched,
        machine.switch_links,
        machine.pcie_levels,
        tuple((str(nic.transport), str(nic.state), nic.rate_gb_s, nic.numa_node, nic.gpu_levels)
              for nic in machine.nics),
        machine.cpu_model,
        machine.inter_socket_gb_s,
        machine.bus_order,
        machine.gpu_direct,
    )  # fmt: skip
    cut = "" if machine.partitions is None else repr(machine.partitions)
    return sha256((repr(facts) + cut).encode()).hexdigest()[:CLASS_DIGITS]


def _gpu(gpu: Gpu, link_bandwidth_gb_s: float | None) -> MachineGpu:
    is_cut = gpu.mig is not None and gpu.mig.mode is MigMode.ENABLED
    major, _, minor = (gpu.compute_capability or "").partition(".")
    return MachineGpu(
        index=gpu.index,
        uuid=gpu.uuid,
        pci_address=gpu.pci_address,
        product=gpu.product,
        architecture=gpu.architecture,
        compute_capability=(int(major), int(minor)) if major else None,
        memory_bytes=gpu.memory_bytes,
        numa_node=gpu.numa_node,
        mig_enabled=is_cut,
        link_bandwidth_gb_s=gpu.link_bandwidth_gb_s if gpu.link_bandwidth_gb_s is not None else link_bandwidth_gb_s,
        pcie_generation=gpu.pcie_generation,
        pcie_width=gpu.pcie_width,
        mig_devices=_mig_devices(gpu.mig) if is_cut and gpu.mig is not None else (),
        c2c_gb_s=_c2c_gb_s(gpu.c2c) if gpu.c2c is not None and gpu.c2c.links else None,
    )


def _c2c_gb_s(c2c: C2C) -> float:
    return c2c.bandwidth_gb_s if c2c.bandwidth_gb_s else c2c.links * _C2C_LINK_GB_S


def _mig_devices(mig: Mig) -> tuple[MachineMig, ...]:
    found = (MachineMig(device.uuid, device.profile, device.memory_bytes) for device in mig.devices)
    return tuple(sorted(found, key=lambda device: device.uuid))


def _nics(spec: NodeTopologySpec, order: list[int], nics_down: tuple[str, ...]) -> Iterator[MachineNic]:
    """Those that somebody knows to be there and what they speak: what is not known is not counted on."""
    for nic in spec.nics or ():
        if nic.transport is None or nic.state is None:
            continue
        yield MachineNic(
            name=nic.name,
            port=nic.port,
            transport=nic.transport,
            state=PortState.DOWN if nic.name in nics_down else nic.state,
            rate_gb_s=None if nic.rate_gb_per_s is None else nic.rate_gb_per_s / 8,
            numa_node=nic.numa_node,
            gpu_levels=tuple(nic.gpu_levels[row] for row in order) if nic.gpu_levels else (),
            pci_address=nic.pci_address,
            data_direct=nic.data_direct_address is not None,
        )


def _direct_links(spec: NodeTopologySpec, gpus: tuple[MachineGpu, ...]) -> list[list[int]]:
    at = {gpu.index: position for position, gpu in enumerate(gpus)}
    links = [[0] * len(gpus) for _ in gpus]
    for pair in spec.nvlink.pairs:
        a, b = at[pair.a], at[pair.b]
        links[a][b] = links[b][a] = pair.links
    return links


def _less(links: list[list[int]], lost: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Direct links that are surely up.

    NVML numbers a GPU's links but need not say where each one leads. Both ends see that a link is down, so a pair can
    have lost as many as both its ends report. Where no neighbour of a GPU reports one, the other end is silent, and
    each pair of that GPU may have lost it: a link that may be down is never counted on.
    """
    everyone = range(len(links))
    silent = [lost[a] > 0 and not any(lost[b] for b in everyone if links[a][b]) for a in everyone]

    def up(a: int, b: int) -> int:
        down = max(lost[a] if silent[a] else 0, lost[b] if silent[b] else 0, min(lost[a], lost[b]))
        return max(0, links[a][b] - down)

    return tuple(tuple(up(a, b) for b in everyone) for a in everyone)


def _bus(pci_address: str) -> tuple[int, ...]:
    """A PCI address as numbers: 0000:0f:00.0 comes after 0000:0e:00.0, also with an 8-digit domain."""
    domain, bus, rest = pci_address.split(":")
    device, _, function = rest.partition(".")
    return int(domain, 16), int(bus, 16), int(device, 16), int(function, 16)
