"""Alike nodes as one group: placement computes the same for all of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from closeknit.api.reasons import ExclusionReason
from closeknit.cluster.node.cpu_share import cpu_share_milli
from closeknit.cluster.node.node import NodeView, PluginOffer
from closeknit.cluster.objects.nic_exposure import NicExposure
from closeknit.cluster.objects.pod_requests import CPU
from closeknit.cluster.objects.taints_and_faults import FaultKind, Taint
from closeknit.machine.graph import Machine

MANY_HOLDERS = 4  # as many jobs and Pods on a node, and more, count alike: it will not be whole again soon


@dataclass(frozen=True, slots=True)
class MachineKind:
    """Machines that differ only in names and addresses."""

    topology_class: str
    products: tuple[str | None, ...]
    """One for each GPU, by position."""
    memory_bytes: tuple[int | None, ...]
    mig: int
    """Mask of the positions that are split by MIG."""
    machine: Machine = field(compare=False, repr=False)
    """One of them."""


@dataclass(frozen=True, slots=True)
class Group:
    """Everything of a node that placement computes with, except its name, its place, its labels and its rest besides
    GPUs, which hardly ever agree."""

    kind: MachineKind | None
    """None exactly where the node has no valid NodeTopology."""
    free: int
    """Mask of the positions that are usable and free."""
    holders: int
    """Number of jobs, Pods and claims known to hold GPUs of the node, MANY_HOLDERS at most; 0 where no GPU is free,
    because then nothing is chosen."""
    faults: tuple[tuple[int, str], ...]
    """(NVML index, why) of each GPU that is not usable, in short."""
    dra: bool
    plugin: PluginOffer | None
    guessed: tuple[int, ...]
    """Mask of each share whose GPUs the device plugin chose, by an unconfirmed prediction."""
    exposure: NicExposure | None
    """How the node offers RDMA NICs to Pods; None where it offers none."""
    functions: tuple[str, ...]
    """Resources of SR-IOV functions by which it offers them; none where they come in other ways."""
    is_rdma_free: bool
    """Whether one more Pod can have them."""
    nics_unoffered: int
    """NICs that no claim can get, for NICs claimed one by one, as a mask of rows of the machine's nics; 0 for other
    NICs."""
    nics_taken: int
    """Those that no claim can have now, the unoffered ones included."""
    cpus_per_gpu: int
    """Whole CPUs for each of its GPUs; 0 where there is not one, or it is unknown."""
    taints: tuple[Taint, ...]
    excluded: ExclusionReason | None
    spare_for: str
    """NodeView.spare_for of each of these nodes."""
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        facts = (self.kind, self.free, self.holders, self.faults, self.plugin, self.taints, self.excluded)
        object.__setattr__(self, "_hash", hash(facts))

    def __hash__(self) -> int:
        return self._hash

    @property
    def is_unoffered(self) -> bool:
        """NodeView.is_unoffered of each of these nodes."""
        if self.plugin is not None:
            return self.plugin.allocatable == 0 and self.kind is not None and len(self.faults) < len(self.kind.products)
        return any(why == FaultKind.NOT_OFFERED for _, why in self.faults)

    @property
    def emptied(self) -> Group | None:
        """The group of these nodes in an empty, healthy copy of the cluster; None for nodes without GPUs."""
        if self.kind is None or not self.kind.products:
            return None
        every = (1 << len(self.kind.products)) - 1
        return Group(
            kind=self.kind,
            free=every & ~self.kind.mig,
            holders=0,
            faults=(),
            dra=True,
            plugin=None,
            guessed=(),
            exposure=self.exposure,
            functions=self.functions,
            is_rdma_free=self.exposure is not None,
            nics_unoffered=self.nics_unoffered,
            nics_taken=self.nics_unoffered,
            cpus_per_gpu=self.cpus_per_gpu,
            taints=self.taints,
            excluded=None,
            spare_for=self.spare_for,
        )


def group_of(view: NodeView, kind: MachineKind | None = None) -> Group:
    """The group of a node; `kind` is its machine's, if known."""
    machine = view.machine
    at = {gpu.index: 1 << position for position, gpu in enumerate(machine.gpus)} if machine else {}
    nics, rows = view.nics, range(len(machine.nics)) if machine and view.nics else ()
    return Group(
        kind=kind or (_kind(machine) if machine else None),
        free=sum(at.get(index, 0) for index in view.free),
        holders=min(MANY_HOLDERS, len({*view.holders.values(), *view.unnamed})) if view.free else 0,
        faults=tuple((index, fault.summary) for index, fault in sorted(view.unusable.items()) if index in at),
        dra=view.dra,
        plugin=view.plugin,
        guessed=tuple(sum(at.get(index, 0) for index in share) for share in view.guessed) if view.free else (),
        exposure=view.rdma.exposure if view.rdma else None,
        functions=view.rdma.functions if view.rdma else (),
        is_rdma_free=_is_rdma_free(view),
        nics_unoffered=sum(1 << row for row in rows if nics and row not in nics.addresses),
        nics_taken=sum(1 << row for row in rows if nics and nics.is_taken(row)),
        cpus_per_gpu=_cpus_per_gpu(view),
        taints=view.taints,
        excluded=view.exclusion.reason if view.exclusion else None,
        spare_for=view.spare_for,
    )


def _kind(machine: Machine) -> MachineKind:
    return MachineKind(
        topology_class=machine.topology_class,
        products=tuple(gpu.product for gpu in machine.gpus),
        memory_bytes=tuple(gpu.memory_bytes for gpu in machine.gpus),
        mig=sum(1 << position for position, gpu in enumerate(machine.gpus) if gpu.mig_enabled),
        machine=machine,
    )


def _cpus_per_gpu(view: NodeView) -> int:
    if view.allocatable is None or view.machine is None:
        return 0
    return cpu_share_milli(view.allocatable.get(CPU, 0), 1, len(view.machine.gpus)) or 0


def _is_rdma_free(view: NodeView) -> bool:
    """Whether adapters given one by one have as many left as are beside the free GPUs."""
    offer = view.rdma
    if offer is None or offer.exposure is not NicExposure.EFA or view.machine is None:
        return offer is not None and offer.free >= 1
    adapters = (view.allocatable or {}).get(offer.resource, 0)
    return offer.free >= 1 and offer.free * len(view.machine.gpus) >= adapters * view.free_gpus
