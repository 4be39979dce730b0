"""A job's booking in its status: its one form inside the process, and the only code that knows its wire form.

On the wire (status.placement) ranks are text, a node's NICs and their resource are left out where they are those of the
node before, and a NIC is named without its port where that is the usual one. A gang over very many nodes is told in
columns (columns.py). Nothing but this module reads or writes that.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import NamedTuple

from closeknit.api.names import ChildName, JobKey, Role
from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import ConditionType
from closeknit.api.trainingjob_status import (
    Actual,
    AwaitedJob,
    Binding,
    NodeAssignment,
    NodeKind,
    PackedNodes,
    ParameterServerAssignment,
    PlacementStatus,
)
from closeknit.cluster.booking.columns import packed, unpacked
from closeknit.cluster.booking.job import InvalidJob
from closeknit.cluster.objects.nic_exposure import is_claimed

# A job in one of these states holds nothing by its booking; what its Pods still hold, they hold by themselves.
RELEASED = frozenset({ConditionType.SUCCEEDED, ConditionType.FAILED, ConditionType.SUSPENDED})
ONE_BY_ONE = 1024  # so many nodes are told one by one, at some 110 bytes each; an object holds 1.5 MiB
DEFAULT_PORT = ":1"  # almost every RDMA NIC has one port; the wire names it by the NIC alone


@dataclass(frozen=True, slots=True)
class BookingShare:
    """A gang's share of one node; its position is the index of its worker Pod."""

    node: str
    gpus: tuple[int, ...]
    """NVML indexes in local-rank order, true for topology_generation only."""
    first_rank: int
    """Global rank of the first GPU; ranks are contiguous."""
    binding: Binding
    nics: tuple[str, ...] = ()
    """RDMA NICs that these ranks use, as name:port; empty without RDMA."""
    rdma_resource: str = ""
    """The node's resource by which its Pod gets them; empty without RDMA."""
    topology_generation: int = 0
    """Generation of the NodeTopology that the indexes speak of."""
    gpu_digest: str = ""
    """Of the UUIDs of these GPUs (`gpu_digest`); empty where they are not known, or of a gang in columns."""
    actual: Actual | None = None
    """Whether its Pod really got these GPUs; None until it is checked."""
    succeeded: bool = False
    """Whether its Pod has succeeded."""
    mig_device: str = ""
    """UUID of the MIG device that it has of its one GPU; empty where it has whole GPUs."""
    server: int | None = None
    """Index of a parameter server, which has no GPUs here; None of a worker."""
    lost: bool = False
    """Whether its node is lost: it holds nothing there, and another node is to take its place."""
    replacement: int = 0
    """How many Pods had its place in the attempt before the one that has it now."""

    @property
    def ranks(self) -> range:
        """Global ranks of this share."""
        return range(self.first_rank, self.first_rank + len(self.gpus))

    @property
    def is_claimed(self) -> bool:
        """Whether its Pod has a claim: on its GPUs, its NICs or both."""
        return self.binding is Binding.DRA or is_claimed(self.rdma_resource)

    @property
    def is_verified(self) -> bool:
        """Whether its Pod is known to have got these GPUs."""
        return self.actual is Actual.VERIFIED


class AwaitedAttempt(NamedTuple):
    """One attempt of a job that makes room for another job."""

    job: JobKey
    uid: str
    attempt: int
    moves: bool = False
    """Whether it goes on elsewhere with as many GPUs, and ends for nothing else."""


@dataclass(frozen=True, slots=True)
class Booking:
    """Everything that one attempt of a job holds: shares of workers in rank order, then those of its parameter
    servers."""

    uid: str
    attempt: int
    shares: tuple[BookingShare, ...]
    spares: tuple[BookingShare, ...] = ()
    """Held to take the place of lost shares: without ranks, and no Pod stands for them."""
    awaits: tuple[AwaitedAttempt, ...] = ()
    """Jobs that make room for it: it is held for the moment when their Pods are gone, and has no Pod before."""

    @property
    def workers(self) -> int:
        """The number of workers' shares."""
        last = self.shares[-1].server if self.shares else None
        return len(self.shares) - (0 if last is None else last + 1)

    @property
    def gpus(self) -> int:
        """Ranks of all workers: the world size."""
        return sum(len(share.gpus) for share in self.shares)

    @property
    def lost(self) -> tuple[int, ...]:
        """Positions of the shares whose nodes are lost, ascending."""
        return tuple(position for position, share in enumerate(self.shares) if share.lost)

    def has_no_place_for(self, child: ChildName) -> bool:
        """Whether it is a worker of this attempt beyond the last share: one of a growth that was taken back."""
        return child.role is Role.WORKER and child.attempt == self.attempt and child.index >= self.workers

    def position(self, child: ChildName) -> int:
        """The position of the share of a child of this name; beyond the last without one, and of a replaced Pod."""
        beyond = len(self.shares)
        if child.role is Role.WORKER:
            found = child.index if child.index < self.workers else beyond
        else:
            found = min(self.workers + child.index, beyond)
        return found if found < beyond and self.shares[found].replacement == child.replacement else beyond


def gpu_digest(uuids: Sequence[str]) -> str:
    """Tells whether GPUs are the same in the same order: 40 bits, for indexes that a node gives to others after a
    restart, and not against somebody who looks for two alike. Empty where one is unknown."""
    return sha256(",".join(uuids).encode()).hexdigest()[:10] if uuids and all(uuids) else ""


def booking(job: TrainingJob | InvalidJob) -> Booking | None:
    """The job's booking by its status: the placement of an attempt that has not ended; None without one."""
    status = job.status
    if status.placement is None or not (status.placement.nodes or status.placement.packed):
        return None
    if any(condition.type in RELEASED and condition.status == "True" for condition in status.conditions):
        return None
    attempt = status.attempt or 1
    if any(ended.number == attempt and not ended.in_place for ended in status.attempts):
        return None
    placement = status.placement
    return Booking(job.metadata.uid or "", attempt, decoded(placement), spares(placement), _awaited(placement))


def _awaited(placement: PlacementStatus) -> tuple[AwaitedAttempt, ...]:
    told = placement.awaits or ()
    return tuple(
        AwaitedAttempt(JobKey(each.namespace, each.name), each.uid, each.attempt, bool(each.moves)) for each in told
    )


def encoded_awaits(awaited: Sequence[AwaitedAttempt]) -> list[AwaitedJob] | None:
    """The field of status.placement for these jobs; None without any."""
    told = (
        AwaitedJob(
            namespace=each.job.namespace,
            name=each.job.name,
            uid=each.uid,
            attempt=each.attempt,
            moves=True if each.moves else None,
        )
        for each in awaited
    )
    return list(told) or None


def spares(placement: PlacementStatus) -> tuple[BookingShare, ...]:
    """The spare shares of a stored placement."""
    return _from_nodes(placement.spares or ())


def decoded(placement: PlacementStatus) -> tuple[BookingShare, ...]:
    """The shares of a stored placement."""
    workers, servers = _workers(placement), placement.parameter_servers
    shares = workers
    if servers:
        first = len(workers)
        ended = _positions(placement.succeeded or "", first + len(servers))
        shares += tuple(
            server_share(each.node, index, succeeded=first + index in ended) for index, each in enumerate(servers)
        )
    if placement.lost is None and not placement.replaced:
        return shares
    lost, replaced = _positions(placement.lost or "", len(shares)), placement.replaced or {}
    return tuple(
        replace(share, lost=at in lost, replacement=replaced.get(str(at), 0))
        if at in lost or str(at) in replaced
        else share
        for at, share in enumerate(shares)
    )


def server_share(node: str, index: int, *, succeeded: bool = False) -> BookingShare:
    """The share of a parameter server. It has no GPUs, so there is nothing to verify."""
    whole, verified = Binding.WHOLE_NODE, Actual.VERIFIED
    return BookingShare(node, (), 0, whole, actual=verified, succeeded=succeeded, server=index)


def _workers(placement: PlacementStatus) -> tuple[BookingShare, ...]:
    if placement.packed is not None:
        return _from_columns(placement.packed, placement.succeeded or "")
    return _from_nodes(placement.nodes, _positions(placement.succeeded or "", len(placement.nodes)))


def _from_nodes(told: Sequence[NodeAssignment], succeeded: Collection[int] = ()) -> tuple[BookingShare, ...]:
    shares: list[BookingShare] = []
    nics: tuple[str, ...] = ()
    resource = ""
    first_rank = 0
    for position, node in enumerate(told):
        if node.nics is not None:  # absent: as the node before
            nics = _nics(node.nics)
        resource = resource if node.rdma_resource is None else node.rdma_resource
        gpus = tuple(node.gpus)
        shares.append(
            BookingShare(
                node=node.name,
                gpus=gpus,
                first_rank=first_rank,
                binding=node.binding,
                nics=nics,
                rdma_resource=resource if nics else "",
                topology_generation=node.topology_generation,
                gpu_digest=node.gpu_digest or "",
                actual=node.actual,
                succeeded=position in succeeded,
                mig_device=node.mig_device or "",
            )
        )
        first_rank += len(gpus)
    return tuple(shares)


class WireShares(NamedTuple):
    """Shares in the form of status.placement."""

    nodes: list[NodeAssignment]
    packed: PackedNodes | None
    parameter_servers: list[ParameterServerAssignment] | None


def encoded(shares: Sequence[BookingShare]) -> WireShares:
    """The fields of status.placement for these shares: nodes one by one, or columns for too many."""
    workers, servers = shares, None
    if shares and shares[-1].server is not None:
        workers = [share for share in shares if share.server is None]
        served = ((share.node, share.server) for share in shares if share.server is not None)
        servers = [ParameterServerAssignment(node=node, index=index) for node, index in served]
    if len(workers) <= ONE_BY_ONE:
        return WireShares(_one_by_one(workers), None, servers)
    return WireShares([], _in_columns(workers), servers)


def assignments(placement: PlacementStatus) -> list[NodeAssignment]:
    """The nodes of a stored placement one by one, from either form."""
    return placement.nodes if placement.packed is None else _one_by_one(_workers(placement))


def _in_columns(shares: Sequence[BookingShare]) -> PackedNodes:
    alike = [(share.gpus, share.nics, share.rdma_resource, share.binding, share.actual) for share in shares]
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(alike))}
    first = {number: share for share, number in zip(reversed(shares), map(numbers.get, reversed(alike)), strict=True)}
    kinds = [
        NodeKind(
            gpus=list(share.gpus),
            nics=_told_nics(share) or None,
            rdma_resource=share.rdma_resource or None,
            binding=share.binding,
            actual=share.actual,
        )
        for share in map(first.__getitem__, numbers.values())
    ]
    generations = [share.topology_generation for share in shares]
    return packed([share.node for share in shares], kinds, map(numbers.__getitem__, alike), generations)


def _from_columns(nodes: PackedNodes, succeeded: str) -> tuple[BookingShare, ...]:
    shares: list[BookingShare] = []
    first_rank = 0
    columns = list(unpacked(nodes))
    ended = _positions(succeeded, len(columns))
    for position, (name, kind, generation) in enumerate(columns):
        shares.append(
            BookingShare(
                node=name,
                gpus=tuple(kind.gpus),
                first_rank=first_rank,
                binding=kind.binding,
                nics=_nics(kind.nics or ()),
                rdma_resource=kind.rdma_resource or "",
                topology_generation=generation,
                actual=kind.actual,
                succeeded=position in ended,
            )
        )
        first_rank += len(kind.gpus)
    return tuple(shares)


def _nics(told: Iterable[str]) -> tuple[str, ...]:
    return tuple(nic if ":" in nic else f"{nic}{DEFAULT_PORT}" for nic in told)


def _told_nics(share: BookingShare) -> list[str]:
    return [nic.removesuffix(DEFAULT_PORT) for nic in share.nics]


def _one_by_one(shares: Iterable[BookingShare]) -> list[NodeAssignment]:
    nodes: list[NodeAssignment] = []
    before: tuple[str, ...] = ()
    resource = ""
    for share in shares:
        is_another = share.nics != () and share.rdma_resource != resource
        resource = share.rdma_resource if is_another else resource
        nodes.append(
            NodeAssignment(
                name=share.node,
                gpus=list(share.gpus),
                mig_device=share.mig_device or None,
                ranks=_rank_range(share.ranks),
                nics=None if share.nics == before else _told_nics(share),
                rdma_resource=resource if is_another else None,
                binding=share.binding,
                topology_generation=share.topology_generation,
                gpu_digest=share.gpu_digest or None,
                actual=share.actual,
            )
        )
        before = share.nics
    return nodes


def encoded_spares(shares: Sequence[BookingShare]) -> list[NodeAssignment] | None:
    """The field of status.placement for these spare shares; None without any."""
    return [node.model_copy(update={"ranks": ""}) for node in _one_by_one(shares)] or None


def until_stored(meant: PlacementStatus, held: Booking) -> PlacementStatus:
    """The placement that a job is to have; what it gives up for that is still its own, among the spares, until the
    change is stored: the write may be refused."""
    kept = {_what(share) for share in (*decoded(meant), *spares(meant)) if not share.lost}
    had = [
        replace(share, replacement=0)
        for share in (*held.shares, *held.spares)
        if share.server is None and not share.lost and _what(share) not in kept
    ]
    return meant.model_copy(update={"spares": encoded_spares((*spares(meant), *had))}) if had else meant


def _what(share: BookingShare) -> tuple[str, tuple[int, ...], str]:
    return share.node, share.gpus, share.mig_device


def with_shares(placement: PlacementStatus, shares: Sequence[BookingShare]) -> PlacementStatus:
    """The stored placement with these shares; the same object if they are equal. A spare that is now a share is none
    any more."""
    if tuple(shares) == decoded(placement):
        return placement
    succeeded = _ranges([position for position, share in enumerate(shares) if share.succeeded])
    lost = _ranges([position for position, share in enumerate(shares) if share.lost])
    held = {share.node for share in shares if not share.lost}
    left = [share for share in spares(placement) if share.node not in held]
    told = {**encoded(shares)._asdict(), "succeeded": succeeded or None, "lost": lost or None}
    told |= {"spares": encoded_spares(left), "replaced": replacements(shares)}
    return placement.model_copy(update=told)


def replacements(shares: Sequence[BookingShare]) -> dict[str, int] | None:
    """How status.placement tells which Pods have taken the place of others; None without any."""
    return {str(at): share.replacement for at, share in enumerate(shares) if share.replacement} or None


def names(nodes: Sequence[str]) -> str:
    """Nodes for people, the first few by name."""
    shown = ", ".join(nodes[:8])
    return f"{shown} and {len(nodes) - 8} more" if len(nodes) > 8 else shown


def _rank_range(ranks: range) -> str:
    """0-7, or 3 alone."""
    return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]}-{ranks[-1]}"


def _ranges(positions: Sequence[int]) -> str:
    """0-3,7 of ascending positions."""
    found: list[list[int]] = []
    for position in positions:
        if found and found[-1][1] == position - 1:
            found[-1][1] = position
        else:
            found.append([position, position])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def _positions(ranges: str, count: int) -> frozenset[int]:
    """The positions below `count` of what `_ranges` wrote; a range that does not come after the one before is none."""
    found: list[int] = []
    after = 0
    for text in ranges.split(",") if ranges else ():
        first, _, last = text.partition("-")
        positions = range(max(after, int(first)), min(int(last or first), count - 1) + 1)
        found.extend(positions)
        after = max(after, positions.stop)
    return frozenset(found)
