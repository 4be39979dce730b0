"""The nodes of one group for one job."""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from closeknit.api.nodetopology import Transport
from closeknit.cluster.forest.group import Group, MachineKind
from closeknit.cluster.objects.nic_exposure import NicExposure
from closeknit.machine.graph import MachineGpu
from closeknit.machine.islands import islands
from closeknit.placement.allreduce.bandwidth import EVERY_NIC, NicAccess
from closeknit.placement.allreduce.paths import nvlink_generation
from closeknit.placement.candidates.cpu_cover import CpuCover
from closeknit.placement.gpusets.gpu_sets import GpuSets
from closeknit.placement.gpusets.masks import mask_of, positions_of
from closeknit.placement.values.request import Request


class Terms(NamedTuple):
    """All facts that the choice of a node's GPUs depends on; a cluster's many nodes have few different ones."""

    sets: GpuSets
    kind: tuple[str, ...]
    """Machines of equal kind are as good as each other in one gang: the products of the GPUs that the job takes."""
    free: int
    """Mask of GPUs without a holder."""
    pool: int
    """Mask of those that the job may take."""
    holders: int
    """Number of holders of the node's GPUs, group.MANY_HOLDERS at most."""
    dra: bool
    whole: bool
    """Whether a device plugin can give all GPUs of the node at once."""
    part: int
    """Number of GPUs that a device plugin can give."""
    transports: tuple[Transport, ...]
    """RDMA transports that a Pod can get here."""
    exposure: NicExposure | None
    """How it gets them; None without any."""
    nics: NicAccess
    """The NICs that it can get."""
    is_foreseen: bool
    """Whether the device plugin's choice is known: exactly all that is free."""
    beyond: bool
    """Whether the device plugin could also give GPUs that are not free: it does not know that they are broken."""
    is_shared: bool
    """Whether the job gets a replica of a GPU: only one, because two may be of the same."""
    cover: CpuCover | None
    """Number of the free GPUs with CPU; None for all, or if unknown."""
    unnamed: int = 0
    """Number of `free` GPUs that Pods have, unknown which."""
    guessed: tuple[int, ...] = ()
    """Masks of GPUs predicted for others, share by share: each may have others of the machine."""

    @property
    def free_gpus(self) -> int:
        """Number of free GPUs."""
        return max(0, self.free.bit_count() - self.unnamed)

    @property
    def given_from(self) -> int:
        """Mask of the GPUs that the device plugin may give, as far as known."""
        found = self.free
        for share in self.guessed:
            found |= share
        return found

    def islands(self) -> list[int]:
        """Sizes of the NVLink islands of free GPUs that the job may take, as small as they may be if it is unknown
        which are free."""
        sizes = [len(island) for island in islands(self.sets.facts.machine, positions_of(self.pool))]
        for _ in range(min(self.unnamed, sum(sizes))):
            sizes[sizes.index(max(sizes))] -= 1
        return [size for size in sizes if size]


class Peers(NamedTuple):
    """The offers that may be in one gang together. A search over the tree depends on them, so they are in its key."""

    kind: tuple[str, ...] | None = None
    """Machines of this kind; None for any."""
    nvlink_generation: int | None = None
    """Machines with NVLink of this generation; None for any."""
    transport: Transport | None = None
    """Nodes whose Pods can get this RDMA transport; None for sockets, which all have."""
    exposure: NicExposure | None = None
    """Nodes that give it in this way: all Pods of a gang get theirs in the same one, or their networks differ, too."""
    is_by_claim: bool = False
    """Nodes whose GPUs are bound by claims."""

    def has(self, terms: Terms) -> bool:
        """Whether they include an offer of these terms."""
        return (
            (self.kind is None or terms.kind == self.kind)
            and (self.transport is None or (self.transport in terms.transports and terms.exposure is self.exposure))
            and (terms.dra or not self.is_by_claim)
            and (
                self.nvlink_generation is None or nvlink_generation(terms.sets.facts.machine) == self.nvlink_generation
            )
        )


class Joint(IntEnum):
    """Whether NVLink joins the nodes of a gang, and how much of each it then takes.

    NVIDIA's driver gives a node one IMEX channel, and that to one claim (assertImexChannelNotAllocated in its
    compute-domain-kubelet-plugin): of two Pods on a node that each claim a channel, the second never starts.
    """

    NONE = 0
    WHOLE = 1
    """It takes all GPUs, so that no Pod beside it can claim the channel."""
    MOST = 2
    """It takes more than half, so that no second gang of this kind can be there; strangers can."""


def fewest_joined(gpus: int, joint: Joint) -> int:
    """The fewest of a node's GPUs with which a gang can have NVLink beyond it."""
    return gpus if joint is Joint.WHOLE else gpus // 2 + 1


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """One object for equal terms, found by identity: cache.py makes it so."""

    terms: Terms
    gpus: int
    """Number that the job may take."""

    def fewest_joined(self, joint: Joint) -> int:
        """The fewest GPUs of its node with which a gang can have NVLink beyond it."""
        return fewest_joined(len(self.terms.sets.facts.machine.gpus), joint)


def terms(
    group: Group, kind: MachineKind, sets: GpuSets, request: Request, matches: int, *, asks_for_nics: bool
) -> Terms:
    """The terms of a group's nodes, of this kind, for a job that takes the GPUs of this mask, and whose Pods request
    NICs themselves or get them."""
    count, allow_shared = len(kind.products), request.allow_shared
    exposed = group.exposure.transports if group.exposure and (asks_for_nics or group.is_rdma_free) else ()
    nics = EVERY_NIC
    if group.exposure is NicExposure.DRANET and not asks_for_nics:
        nics = NicAccess(group.nics_taken, is_dealt=True)
        exposed = () if request.claims_itself else exposed
    transports = tuple(
        transport
        for transport in sets.facts.transports
        if transport in exposed and (not nics.taken or sets.nics(sets.facts.every, transport, nics).rows)
    )
    plugin = group.plugin if group.plugin and not group.plugin.shared else None
    shared = group.plugin if allow_shared and group.plugin and group.plugin.is_replicated else None
    unnamed = min(plugin.unnamed, group.free.bit_count()) if plugin else 0
    free_gpus = group.free.bit_count() - unnamed
    part = min(plugin.free, free_gpus) if plugin else 0
    # A GPU that somebody was foreseen to have, and that broke, may be another's to give.
    is_broken = any(share & ~_usable(group, kind) for share in group.guessed)
    return Terms(
        sets=sets,
        kind=_kind(kind, matches),
        free=group.free,
        pool=group.free & matches,
        holders=group.holders,
        dra=group.dra,
        whole=plugin is not None
        and plugin.requested == 0
        and plugin.allocatable == plugin.capacity == count
        and group.free == sets.facts.every,
        part=min(1, shared.free, group.free) if shared else part,
        transports=transports,
        exposure=group.exposure if transports else None,
        nics=nics,
        is_foreseen=plugin is not None and not plugin.is_narrowed and plugin.free == free_gpus,
        beyond=plugin is not None and (plugin.free > free_gpus or is_broken),
        is_shared=shared is not None,
        cover=None,
        unnamed=unnamed,
        guessed=group.guessed if plugin else (),
    )


def matching(kind: MachineKind, request: Request) -> int:
    """Mask of the GPUs that are of a product and a size that the job takes."""
    return mask_of(
        position
        for position, (product, memory_bytes) in enumerate(zip(kind.products, kind.memory_bytes, strict=True))
        if (not request.products or product in request.products)
        and (request.min_memory_bytes is None or (memory_bytes or 0) >= request.min_memory_bytes)
    )


def _usable(group: Group, kind: MachineKind) -> int:
    """Mask of the GPUs that are not broken."""
    broken = {index for index, _ in group.faults}
    return mask_of(position for position, gpu in enumerate(kind.machine.gpus) if gpu.index not in broken)


def _kind(kind: MachineKind, matches: int) -> tuple[str, ...]:
    """In words; `matches` is the mask of the GPUs that the job takes."""
    taken = positions_of(matches)
    words = {kind.products[position] or _unknown(kind.machine.gpus[position]) for position in taken}
    return tuple(sorted(words))


def _unknown(gpu: MachineGpu) -> str:
    sm = gpu.compute_capability
    return f"GPUs of unknown product (compute capability {'.'.join(map(str, sm)) if sm else 'unknown'})"
