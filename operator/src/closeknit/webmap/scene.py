"""The map of one moment: rows of machines, nodes and jobs, made again only where their objects have changed."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from closeknit.api.cluster_summary import ClusterSummary
from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob_status import State
from closeknit.cluster.booking.job import InvalidJob
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node.node import NodeView
from closeknit.lifecycle.overview.counts import jobs_of
from closeknit.lifecycle.overview.summary import news_of, summary
from closeknit.lifecycle.own_mistake import OwnMistake, guarded
from closeknit.machine.graph import Machine
from closeknit.placement.fragmentation import Fragmentation
from closeknit.scheduling.queue.entries import queue_place
from closeknit.webmap.job_rows import job_row
from closeknit.webmap.machine_rows import is_shown, machine_row, node_row
from closeknit.webmap.map_rows import JobRow, NodeRow
from closeknit.webmap.queue_edits import QueueEdit, edits

ROW_BYTES = 1 << 19  # of a job: some 10,000 nodes at 50 bytes, as many as a gang of 65,536 GPUs has
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A node, its row, and that on the wire for a reader who may list every job."""

    view: NodeView
    row: NodeRow
    wire: bytes


@dataclass(frozen=True, slots=True)
class DrawnJob:
    """A job, and its row on the wire."""

    job: TrainingJob | InvalidJob
    lent: tuple[str, ...]
    """As JobRow has it: it depends on other jobs."""
    wire: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """The map of one moment. What has not changed since the one before is the same object."""

    levels: tuple[str, ...] = ()
    """Names of the network's levels around nodes, outermost first."""
    machines: Mapping[str, bytes] = field(default_factory=dict)
    """Rows on the wire by key."""
    nodes: Mapping[str, DrawnNode] = field(default_factory=dict)
    jobs: Mapping[JobKey, DrawnJob] = field(default_factory=dict)
    queue: tuple[JobKey, ...] = ()
    """Those that wait, the next one first."""
    queue_edits: tuple[QueueEdit, ...] = ()
    queue_before: tuple[JobKey, ...] | None = None
    """The queue that `queue_edits` lead from."""
    namespaces: Mapping[str, int] = field(default_factory=dict)
    """How many jobs each has."""
    totals: ClusterSummary | None = None
    priorities: Mapping[str, int] = field(default_factory=dict)
    """By which the rows of jobs were made."""
    faults: int = 0
    """Rows that a mistake of ours has kept out."""


EMPTY_SCENE = Scene()


def scene(cluster: Cluster, free: Fragmentation | None, now: datetime, version: str, before: Scene) -> Scene:
    """The map now. `before` saves work and changes nothing of it. `free` None: not counted yet."""
    kinds: dict[str, Machine] = {}
    nodes: dict[str, DrawnNode] = {}
    for name, view in sorted(cluster.nodes.items()):
        if is_shown(view):
            known = before.nodes.get(name)
            nodes[name] = known if known is not None and known.view is view else _drawn_node(view)
            if view.machine is not None and nodes[name].row.machine not in kinds:
                kinds[nodes[name].row.machine] = view.machine
    jobs, faults = _jobs(cluster, before)
    waiting = [job for job in cluster.jobs.values() if _waits(job)]
    waiting.sort(key=lambda job: queue_place(cluster, job))
    queue = tuple(job.key for job in waiting)
    queue = before.queue if queue == before.queue else queue
    return Scene(
        levels=cluster.levels[:-1],
        machines={key: before.machines.get(key) or _encode(machine_row(kind)) for key, kind in kinds.items()},
        nodes=nodes,
        jobs=jobs,
        queue=queue,
        queue_edits=edits(before.queue, queue),
        queue_before=before.queue,
        namespaces=Counter(key.namespace for key in jobs),
        totals=news_of(summary(cluster, free, now, version), before.totals),
        priorities=cluster.priorities,
        faults=faults,
    )


def _drawn_node(view: NodeView) -> DrawnNode:
    row = node_row(view)
    return DrawnNode(view, row, _encode(row))


def _jobs(cluster: Cluster, before: Scene) -> tuple[dict[JobKey, DrawnJob], int]:
    """By namespace and name. A job by which a mistake of ours is met keeps its name and state."""
    found: dict[JobKey, DrawnJob] = {}
    faults = 0
    is_same = cluster.priorities is before.priorities
    lent = _lent(cluster)
    for job in sorted(jobs_of(cluster), key=lambda job: job.key):
        known = before.jobs.get(job.key)
        nodes = lent.get(job.key, ())
        if is_same and known is not None and known.job is job and known.lent == nodes:
            found[job.key] = known
            continue
        row = guarded(job_row, job, cluster)
        if isinstance(row, OwnMistake):
            faults += 1
            row = JobRow(job.key.namespace, job.key.name, (job.status.state or State.QUEUED).value)
        row = msgspec.structs.replace(row, lent=nodes)
        wire = _encode(row)
        if len(wire) > ROW_BYTES:
            wire = _encode(msgspec.structs.replace(row, shares=(), spares=(), lent=()))
        found[job.key] = DrawnJob(job, nodes, wire)
    return found, faults


def _lent(cluster: Cluster) -> dict[JobKey, tuple[str, ...]]:
    """The nodes that are lent to each job that has some, by other jobs or by other queues than its own."""
    placed = ((key, job.status.placement) for key, job in cluster.jobs.items())
    owners = [key for key, placement in placed if placement is not None and placement.spares]
    borrowers = {each for owner in owners for each in cluster.borrowers_of(owner)}
    for queue, nodes in cluster.queue_spares.items():
        borrowers.update(key for key in cluster.booked_there(nodes) if _queue(cluster, key) != queue)
    found: dict[JobKey, tuple[str, ...]] = {}
    for borrower in borrowers:
        held, queue = cluster.booking_of(borrower), _queue(cluster, borrower)
        shares = () if held is None else held.shares
        lent = (
            share.node
            for share in shares
            if cluster.lenders_of(borrower, share.node, share.gpus)
            or _spare_for(cluster, share.node) not in ("", queue)
        )
        found[borrower] = tuple(dict.fromkeys(lent))
    return found


def _queue(cluster: Cluster, key: JobKey) -> str:
    job = cluster.jobs.get(key)
    return "" if job is None else job.spec.queue or ""


def _spare_for(cluster: Cluster, node: str) -> str:
    view = cluster.nodes.get(node)
    return "" if view is None else view.spare_for


def _waits(job: TrainingJob) -> bool:
    return job.status.pending is not None or job.status.state in {None, State.QUEUED}
