"""Lemons: nodes and GPUs that ended two runs within seven days, so that jobs are placed there last.

Only ends by the machine are evidence: a dead node, a GPU, a NIC, a rank that no longer answers. A rank that exits with
an error beside a well machine is none: most often it is the program, and in a small cluster chance alone would make
every node a lemon within a week. Ends of several jobs by one fault count once. Evidence is kept with the NodeTopology,
for jobs are deleted. It goes with it, as a new machine has no past, and an administrator can clear it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from closeknit.api.names import LEMON_CLEARED_ANNOTATION
from closeknit.api.nodetopology_status import MAX_RUN_ENDS, LemonStatus, RunEnd
from closeknit.api.trainingjob_status import NodeAssignment, PlacementStatus
from closeknit.cluster.booking.booking import assignments
from closeknit.cluster.cluster import Cluster, NodeRecord
from closeknit.cluster.objects.agent_report import moment
from closeknit.lifecycle.status.conditions import stated, timestamp
from closeknit.lifecycle.status.pauses import CLOCK_SKEW
from closeknit.placement.values.sentences import count

# Meta found the lemons of two clusters, 1.2% of all nodes, by their failures within weeks: 14% of its large jobs failed
# before they were taken out, and 4% after (Kokolis et al., arXiv:2410.21680, section IV).
WINDOW = timedelta(days=7)
RUNS = 2  # one is bad luck
# A node that is switched off ends all jobs on it within the time that a death takes to be known; and the job avoids a
# node that comes back for as long (avoided_nodes.py).
ONE_FAULT = timedelta(minutes=10)
_TOLD = 4  # runs in a message


@dataclass(frozen=True, slots=True)
class Lemon:
    """A node, or one GPU of it."""

    node: str
    gpu: str | None
    """UUID of the GPU; None: the node."""
    ends: tuple[RunEnd, ...]
    """The runs that ended by it and count, the oldest first."""
    faults: int
    """How many those are, ends by one fault counted once."""
    since: datetime
    """When the one ended that made it a lemon."""

    @property
    def words(self) -> str:
        """What it is and why, as a clause without its end: `node gpu-7 ended 2 runs within 7 days (…)`."""
        who = f"node {self.node}" if self.gpu is None else f"GPU {self.gpu} of node {self.node}"
        told = [f"{end.job} at {end.ended}: {end.reason}" for end in reversed(self.ends)][:_TOLD]
        more = f"; {len(self.ends) - _TOLD} more" if len(self.ends) > _TOLD else ""
        return f"{who} ended {count(self.faults, 'run')} within {WINDOW.days} days ({'; '.join(told)}{more})"


def lemons(cluster: Cluster, now: datetime) -> tuple[Lemon, ...]:
    """All of them, by node, its GPUs after it."""
    found = [each for record in cluster.records() for each in _lemons(record, cluster, now)]
    return tuple(sorted(found, key=lambda each: (each.node, each.gpu or "")))


def lemons_of(booked: PlacementStatus, cluster: Cluster, now: datetime) -> tuple[Lemon, ...]:
    """Those that a booking has taken."""
    taken = {node.name: node for node in assignments(booked)}
    return tuple(
        each
        for each in lemons(cluster, now)
        if (node := taken.get(each.node)) is not None and (each.gpu is None or each.gpu in _uuids(node, cluster))
    )


def _uuids(node: NodeAssignment, cluster: Cluster) -> set[str | None]:
    view = cluster.nodes.get(node.name)
    gpus = () if view is None or view.machine is None else view.machine.gpus
    return {node.mig_device, *(gpu.uuid for gpu in gpus if gpu.index in node.gpus)}


def _lemons(record: NodeRecord, cluster: Cluster, now: datetime) -> Iterator[Lemon]:
    """A GPU that ended runs is one; where claims do not choose the GPUs its node is; and so is a node by different
    ones. A GPU that is no longer there is none."""
    name, view = record.report.name, cluster.nodes.get(record.report.name)
    there = set() if view is None or view.machine is None else {gpu.uuid for gpu in view.machine.gpus}
    there |= set() if view is None else {device.uuid for device in view.mig}
    counted = [end for end in _counted(record, now) if end.gpu is None or end.gpu in there]
    by_gpu: dict[str, list[RunEnd]] = {}
    for end in counted:
        if end.gpu is not None and view is not None and view.dra:
            by_gpu.setdefault(end.gpu, []).append(end)
    found = {gpu: lemon for gpu, ends in by_gpu.items() if (lemon := _lemon(name, gpu, ends)) is not None}
    node = _lemon(name, None, [end for end in counted if end.gpu not in found])
    yield from ([] if node is None else [node])
    yield from found.values()


def _lemon(node: str, gpu: str | None, ends: Sequence[RunEnd]) -> Lemon | None:
    faults = _faults(ends)
    return None if len(faults) < RUNS else Lemon(node, gpu, tuple(ends), len(faults), faults[RUNS - 1])


def _faults(ends: Iterable[RunEnd]) -> list[datetime]:
    """When each fault ended its first run, in order."""
    found: list[datetime] = []
    for end in ends:
        at = moment(end.ended)
        if at is not None and not (found and at < found[-1] + ONE_FAULT):
            found.append(at)
    return found


def _counted(record: NodeRecord, now: datetime) -> list[RunEnd]:
    """Runs that ended by the node within the window, since it was last cleared; the oldest first. What jobs tell of a
    machine that was here before its NodeTopology was made is nothing of this one."""
    report, latest = record.report, now + CLOCK_SKEW
    cleared = report.lemon_cleared if report.lemon_cleared is not None and report.lemon_cleared <= latest else None
    told = [end for end in record.blamed if report.made is None or report.made <= (moment(end.ended) or report.made)]
    known = {(end.ended, end.job, end.gpu or "", end.reason): end for end in (*(report.run_ends or ()), *told)}
    found = []
    for _, end in sorted(known.items()):
        at = moment(end.ended)
        if at is not None and now - WINDOW < at <= latest and not (cleared is not None and at <= cleared):
            found.append(end)
    return _bounded(found)


def _bounded(ends: list[RunEnd]) -> list[RunEnd]:
    """The newest ones, of which those by which faults are counted come first: a node may end more runs at once than are
    kept, and its fault before is not to be forgotten for that."""
    if len(ends) <= MAX_RUN_ENDS:
        return ends
    begun: dict[str | None, datetime] = {}
    firsts, others = list[int](), list[int]()
    for position, end in enumerate(ends):
        at, before = moment(end.ended), begun.get(end.gpu)
        is_first = at is not None and not (before is not None and at < before + ONE_FAULT)
        if is_first and at is not None:
            begun[end.gpu] = at
        (firsts if is_first else others).append(position)
    kept = [*others, *firsts][-MAX_RUN_ENDS:]
    return [ends[position] for position in sorted(kept)]


def record_of(
    record: NodeRecord, cluster: Cluster, now: datetime
) -> tuple[tuple[RunEnd, ...] | None, LemonStatus | None]:
    """What is to be stored with the node's NodeTopology: the runs that count, and whether it is a lemon."""
    return tuple(_counted(record, now)) or None, _told(tuple(_lemons(record, cluster, now)))


def _told(found: Sequence[Lemon]) -> LemonStatus | None:
    if not found:
        return None
    said = "; ".join(each.words for each in found)
    message = (
        f"{said}: jobs are placed there last. Once it is mended: kubectl annotate nodetopology {found[0].node} "
        f'--overwrite {LEMON_CLEARED_ANNOTATION}="$(date -u +%FT%TZ)"'
    )
    return LemonStatus(since=timestamp(min(each.since for each in found)), message=stated(message, 4096))
