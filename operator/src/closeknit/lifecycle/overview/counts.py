"""How one node and one job count in what is told of the whole cluster."""

from collections.abc import Iterator
from datetime import datetime

from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import PendingReason
from closeknit.cluster.booking.job import InvalidJob
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node.node import NodeView
from closeknit.cluster.objects.taints_and_faults import FaultKind
from closeknit.lifecycle.status.pauses import later

OTHER = "Other"
UNDECIDED = "Undecided"
"""The reason of a job that was submitted and not decided on yet."""
_PENDING = frozenset(PendingReason)


def jobs_of(cluster: Cluster) -> Iterator[TrainingJob | InvalidJob]:
    """All jobs, those with an unreadable spec among them."""
    yield from cluster.jobs.values()
    yield from cluster.invalid_jobs.values()


def gpus_by_state(view: NodeView) -> dict[str, int]:
    """How many GPUs of a node are free, held, in MIG mode, unusable or excluded."""
    known = len(view.machine.gpus) if view.machine else 0
    if view.exclusion is not None:
        return {"excluded": known}
    # It may be unknown which of a device plugin's GPUs are held, or which it would give.
    unnamed = min(len(view.free), view.plugin.unnamed) if view.plugin else 0
    held = len(view.usable) - len(view.free) + unnamed
    mig = sum(fault.kind is FaultKind.MIG for fault in view.unusable.values())
    if view.spare_for:  # held for a queue, as the spare nodes of a job are for that
        held += view.free_gpus
    return {"free": view.open_gpus, "held": held, "mig": mig, "unusable": known - view.open_gpus - held - mig}


def waits_for(job: TrainingJob | InvalidJob) -> str:
    """The reason for which a job waits, where it is one of ours."""
    pending = job.status.pending
    if pending is None:
        return UNDECIDED
    return pending.reason if pending.reason in _PENDING else OTHER


def waits_since(job: TrainingJob | InvalidJob, now: datetime) -> datetime | None:
    """Since when a job without GPUs waits for some: since it was submitted, resumed or lost its place. None where that
    cannot be read."""
    pending = job.status.pending
    told = job.metadata.creation_timestamp if pending is None else pending.queued_since or pending.since
    return None if told is None else later(told, None, now)
