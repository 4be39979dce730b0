"""Jobs that may change while they run: elastic ones, and those that allow to be moved. How they are stored, and how
much of their run is left.

The operator resizes and moves only jobs that run as a whole. So these have the status of such a job, and Pods.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from closeknit.api.names import (
    API_VERSION,
    ATTEMPT_LABEL,
    INDEX_LABEL,
    JOB_LABEL,
    POD_COUNT,
    ROLE_LABEL,
    TRAINING_JOB,
    Role,
    child_name,
)
from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import ConditionReason, ConditionType, EndReason
from closeknit.api.trainingjob import Defragment, TrainingJobSpec
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.booking.booking import decoded
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.objects.meta import Owner
from closeknit.cluster.pods.pod import Pod
from closeknit.lifecycle.booking.booked_placement import assumed
from closeknit.lifecycle.status.conditions import Observation
from closeknit.lifecycle.status.lost_time import Launch
from closeknit.lifecycle.transitions import ends, runs
from closeknit.placement.values.placement import Placement
from closeknit.scheduling.victims.victim import RESTART_COSTS

_VERIFIED = Observation(ConditionType.PLACEMENT_VERIFIED, True, ConditionReason.VERIFIED, "")


def may_change(spec: TrainingJobSpec) -> bool:
    """Whether a job of this spec may be resized or moved while it runs."""
    is_elastic = spec.elastic is not None and spec.elastic.min_gpus < spec.gpus
    return is_elastic or spec.defragment is Defragment.PLANNED


def run_by(job: TrainingJob, placement: Placement, now: datetime) -> TrainingJob:
    """A job that waits, or whose attempt has ended, as it runs on these GPUs from now on."""
    held = assumed(job, placement).status.placement
    if held is None:
        raise RuntimeError(f"{job.key} was given nothing")
    status = runs.booked(job, now, held, attempt=job.status.attempt or 1, epoch=1, environment=None, lacks=None)
    booked = job.model_copy(update={"status": status})
    status = runs.running(booked, now, decoded(held), _VERIFIED, (), Launch())
    return booked.model_copy(update={"status": status})


def ended_by(job: TrainingJob, reason: EndReason, now: datetime) -> TrainingJob:
    """A job that runs, once its attempt has ended for this reason: it waits with the next one's number."""
    status = ends.restarting(job, now, reason, "", again=None)
    return job.model_copy(update={"status": status})


def pods_to_come(job: TrainingJob, cluster: Cluster) -> Iterator[Pod]:
    """The Pods of a job that runs, of which the cluster has none yet."""
    placement = job.status.placement
    name, number = job.metadata.name, job.status.attempt or 1
    for index, share in enumerate(decoded(placement) if placement is not None else ()):
        pod = child_name(name, number, Role.WORKER, index)
        users = (each for each in cluster.takers(share.node) if each.holder[1:3] == tuple(job.key))
        needs = next((dict(each.amounts) for each in users), {})
        needs.pop(POD_COUNT, None)
        view = cluster.nodes[share.node]
        is_claimed = share.binding is Binding.DRA
        if view.plugin is not None and not is_claimed:
            needs[view.plugin.resource] = len(share.gpus)
        marks = {JOB_LABEL: name, ATTEMPT_LABEL: str(number), ROLE_LABEL: Role.WORKER.value, INDEX_LABEL: str(index)}
        yield Pod(
            namespace=job.key.namespace,
            name=pod,
            uid=f"uid-of-{pod}",
            node=share.node,
            phase="Running",
            requests=needs,
            claims=(pod,) if is_claimed else (),
            owners=(Owner(TRAINING_JOB, name, job.metadata.uid or "", API_VERSION, controller=True),),
            labels=marks,
        )


@dataclass(frozen=True, slots=True)
class RunLeft:
    """How much of its run a job has left, of which it does a part in each second: as much as it has of its GPUs."""

    whole_s: float
    """With all of its GPUs."""
    part: float
    since_s: float
    """From when on it trains."""

    def resized(self, part: float, now_s: float) -> "RunLeft":
        """After a restart at this moment, with this part of its GPUs from then on. It has had its grace period for a
        checkpoint, and goes on from there."""
        done_s = max(0.0, now_s - self.since_s) * self.part
        return RunLeft(max(0.0, self.whole_s - done_s), part, now_s + RESTART_COSTS.total_seconds())

    def ends_in_s(self, now_s: float) -> float:
        """After how many seconds it is over."""
        return max(0.0, self.since_s - now_s) + self.whole_s / self.part
