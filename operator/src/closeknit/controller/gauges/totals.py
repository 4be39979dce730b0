"""What is counted over all jobs and nodes of a cluster, as a value."""

from collections import Counter as Tally
from dataclasses import dataclass
from datetime import datetime

from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import ConditionReason, ConditionType, ExclusionReason, PendingReason
from closeknit.api.trainingjob_status import State
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.overview.counts import OTHER, UNDECIDED, gpus_by_state, jobs_of, waits_for, waits_since
from closeknit.lifecycle.restart.lemons import lemons
from closeknit.lifecycle.status.conditions import found

WAITING_REASONS = (*(reason.value for reason in PendingReason), UNDECIDED, OTHER)
LEMONS = ("node", "gpu")
GPU_STATES = ("free", "held", "mig", "unusable", "excluded")
VERIFICATIONS = (ConditionReason.VERIFIED, ConditionReason.NOT_REPORTED, ConditionReason.MISMATCH)
_REASONS = frozenset(ConditionReason)


@dataclass(frozen=True, slots=True)
class Totals:
    """What is counted over a whole cluster. A reason that is none of ours counts as OTHER: who may write a status may
    write any."""

    jobs: Tally[State]
    """TrainingJobs, those with an unreadable spec among them."""
    waiting: Tally[str]
    """Those that wait for GPUs, by reason."""
    waiting_gpus: int
    """GPUs that they ask for."""
    oldest_wait: datetime | None
    """Since when the one waits that has waited longest; None where none waits."""
    degraded: Tally[str]
    """Those that hold GPUs, by the reason of their condition Degraded."""
    verified: Tally[str]
    """Those that hold GPUs and have been checked, by the reason of their condition PlacementVerified."""
    gpus: Tally[str]
    """By state."""
    nodes: int
    """Nodes with GPUs."""
    excluded: Tally[ExclusionReason]
    """Those of them that get no job, by reason."""
    lemons: Tally[str]
    """Nodes, and GPUs of others, by which runs end again and again."""

    @property
    def silent_agents(self) -> int:
        """Nodes that are left out because their agent is silent."""
        return self.excluded[ExclusionReason.AGENT_STALE]


def totals(cluster: Cluster, now: datetime) -> Totals:
    """Counts every job and node: some ten milliseconds on a large cluster, and nothing for the event loop."""
    jobs, waiting, waiting_gpus, oldest = Tally[State](), Tally[str](), 0, None
    for job in jobs_of(cluster):
        status = job.status
        jobs[status.state or State.QUEUED] += 1
        if status.pending is None and status.state not in {None, State.QUEUED}:
            continue
        waiting[waits_for(job)] += 1
        waiting_gpus += job.spec.gpus if isinstance(job, TrainingJob) else 0
        since = waits_since(job, now)
        oldest = since if oldest is None or (since is not None and since < oldest) else oldest
    holding = [job for job in jobs_of(cluster) if cluster.booking_of(job.key) is not None]
    lacking = (found(job.status.conditions, ConditionType.DEGRADED) for job in holding)
    checked = (found(job.status.conditions, ConditionType.PLACEMENT_VERIFIED) for job in holding)
    degraded = Tally(_closed(each.reason) for each in lacking if each is not None and each.status == "True")
    verified = Tally(_closed(each.reason) for each in checked if each is not None)
    gpus, excluded, nodes = Tally[str](), Tally[ExclusionReason](), 0
    for view in cluster.nodes.values():
        if view.exclusion is not None and view.exclusion.has_no_gpus:
            continue
        nodes += 1
        if view.exclusion is not None:
            excluded[view.exclusion.reason] += 1
        gpus.update(gpus_by_state(view))
    sour = Tally("node" if each.gpu is None else "gpu" for each in lemons(cluster, now))
    return Totals(jobs, waiting, waiting_gpus, oldest, degraded, verified, gpus, nodes, excluded, sour)


def _closed(reason: str) -> str:
    """The reason of a stored condition where it is one of ours."""
    return reason if reason in _REASONS else OTHER
