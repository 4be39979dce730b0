"""One walk over the queue: the Plans of all jobs, each decided on the cluster as the ones before leave it."""

from datetime import datetime

from closeknit.api.objects import TrainingJob
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.answers import NOTHING, Memory
from closeknit.lifecycle.invalid import refuse_invalid
from closeknit.lifecycle.plan import Plan
from closeknit.lifecycle.queue import queue
from closeknit.lifecycle.reconcile import reconcile

BROKEN_PAUSE_S = 60.0


def step(cluster: Cluster, now: datetime, memory: Memory = Memory()) -> tuple[Plan, ...]:  # noqa: B008 - frozen
    """The Plans of all jobs that have something to write or to wait for, in the order of the queue.

    A booking that is decided here counts against all jobs after it; a job that does not fit reserves nothing. Jobs in
    `memory.busy` keep what they hold and get no Plan.
    """
    cluster = cluster.at(now)
    plans: list[Plan] = []
    for job in queue(cluster):
        if job.key in memory.busy:
            continue
        answers = memory.answers.get(job.metadata.uid or "", NOTHING)
        try:
            plan = reconcile(job, cluster, now, answers=answers, epoch=memory.epoch)
        except Exception as error:  # one job must not keep all others waiting
            plan = _broken(job, error)
        plans.append(plan)
        # What a Plan sets free is free once that is stored and seen: its write may fail, another's booking may not.
        if plan.status is not None and plan.status.placement is not None and job.status.placement is None:
            cluster = cluster.with_job(job.model_copy(update={"status": plan.status}))
    invalid = sorted(key for key in cluster.invalid_jobs if key not in memory.busy)
    plans += [refuse_invalid(cluster.invalid_jobs[key], now) for key in invalid]
    return tuple(plan for plan in plans if plan.writes or plan.wake_after_s is not None)


def _broken(job: TrainingJob, error: Exception) -> Plan:
    metadata = job.metadata
    version = metadata.resource_version or ""
    return Plan(job.key, metadata.uid or "", version, job.status.attempt or 1, wake_after_s=BROKEN_PAUSE_S, error=error)
