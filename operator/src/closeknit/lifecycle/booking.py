"""A booking: a Placement as status.placement tells it, and back as the Gang that launch makes Pods of."""

from dataclasses import dataclass

from closeknit.api.nodetopology import Transport
from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob_status import NodeAssignment, PlacementStatus
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node import NodeView
from closeknit.launch.gang import Gang
from closeknit.launch.member import Member
from closeknit.placement.placement import Placement

DEFAULT_PORT = ":1"  # almost every RDMA NIC has one port; status names it by the NIC alone


@dataclass(frozen=True, slots=True)
class Lost:
    """A booked node that is no longer what was booked."""

    node: str
    message: str


def placement_status(placement: Placement) -> PlacementStatus:
    """The booking of a placement. A node's nics are left out where they are those of the node before."""
    nodes: list[NodeAssignment] = []
    nics_before: tuple[str, ...] = ()
    for share in placement.shares:
        nodes.append(
            NodeAssignment(
                name=share.node,
                gpus=list(share.gpus),
                ranks=rank_range(share.ranks),
                nics=None if share.nics == nics_before else [nic.removesuffix(DEFAULT_PORT) for nic in share.nics],
                binding=share.binding,
                topology_generation=share.topology_generation,
            )
        )
        nics_before = share.nics
    return PlacementStatus(
        node_count=len(nodes),
        nodes=nodes,
        levels=dict(placement.levels) or None,
        predicted_bus_bandwidth_gb_s=_rounded(placement.predicted_bus_bandwidth_gb_s),
        ideal_bus_bandwidth_gb_s=_rounded(placement.ideal_bus_bandwidth_gb_s),
        limited_by=placement.limited_by or None,
    )


def gang(
    job: TrainingJob, attempt: int, placement: PlacementStatus, cluster: Cluster, *, ipc_lock: bool
) -> Gang | Lost:
    """The gang of a booking, with what the cluster says of its machines now.

    Lost where a node has gone, its GPUs may have other indexes now, or Pods no longer get its NICs: then the booking
    means nothing.
    """
    members: list[Member] = []
    nics: tuple[str, ...] = ()
    first_rank = 0
    for index, assignment in enumerate(placement.nodes):
        view = cluster.nodes.get(assignment.name)
        if view is None:
            return Lost(assignment.name, f"node {assignment.name} is no longer there")
        uuids = _uuids(view, assignment)
        if uuids is None:
            return Lost(assignment.name, f"the GPUs of node {assignment.name} have changed since they were booked")
        if assignment.nics is not None:
            nics = tuple(nic if ":" in nic else f"{nic}{DEFAULT_PORT}" for nic in assignment.nics)
        if nics and view.rdma is None:
            return Lost(assignment.name, f"node {assignment.name} no longer offers an rdma/ resource for {nics[0]}")
        members.append(
            Member(
                node=assignment.name,
                index=index,
                uuids=uuids,
                first_rank=first_rank,
                binding=assignment.binding,
                nics=nics,
                rdma_resource=view.rdma.resource if view.rdma and nics else None,
                transport=_transport(view, nics),
            )
        )
        first_rank += len(assignment.gpus)
    return Gang(job=job, attempt=attempt, members=tuple(members), fabric=cluster.fabric, ipc_lock=ipc_lock)


def rank_range(ranks: range) -> str:
    """Ranks as status tells them: 0-7, or 3 alone."""
    return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]}-{ranks[-1]}"


def names(placement: PlacementStatus) -> str:
    """The nodes of a booking for people, the first few by name."""
    shown = ", ".join(assignment.name for assignment in placement.nodes[:8])
    more = len(placement.nodes) - 8
    return f"{shown} and {more} more" if more > 0 else shown


def _rounded(bandwidth_gb_s: float | None) -> float | None:
    """One decimal, for a printer column formats nothing."""
    return None if bandwidth_gb_s is None else round(bandwidth_gb_s, 1)


def _uuids(view: NodeView, assignment: NodeAssignment) -> tuple[str, ...] | None:
    """UUIDs of the booked indexes; None where they are no longer true."""
    if view.machine is None or view.topology_generation != assignment.topology_generation:
        return None
    by_index = {gpu.index: gpu.uuid or "" for gpu in view.machine.gpus}
    if any(index not in by_index for index in assignment.gpus):
        return None
    return tuple(by_index[index] for index in assignment.gpus)


def _transport(view: NodeView, nics: tuple[str, ...]) -> Transport | None:
    if view.machine is None:
        return None
    return next((nic.transport for nic in view.machine.nics if f"{nic.name}:{nic.port}" in nics), None)
