"""Where a job would be placed in a cluster that is not the present one: without its own Pods, or without others."""

from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.attempt.avoided_nodes import avoided_nodes
from closeknit.lifecycle.attempt.own_gpus import with_own_gpus_free
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import Request
from closeknit.scheduling.policy.admit import chosen
from closeknit.scheduling.policy.policy_context import Walk
from closeknit.scheduling.queue.entries import Case


def alone(case: Case, cluster: Cluster, walk: Walk) -> Cluster:
    """The cluster without the job's own older Pods, and without devices that it avoids."""
    away = avoided_nodes(case.job, cluster, walk.now)
    return with_own_gpus_free(case.job, case.pods, cluster).without(away.devices)


def placed(case: Case, asked: Request, cluster: Cluster, walk: Walk) -> Placement | None:
    """The gang's placement in this cluster; None where it does not fit."""
    found = walk.questions.placed(asked, cluster)
    return None if found is None else chosen(asked, found, case.volumes.choices, cluster, walk)


def passing(case: Case, asked: Request, found: Placement | None, cluster: Cluster, walk: Walk) -> Placement | None:
    """The gang's placement in this cluster, or another one there that takes nothing of what is kept for a job before
    it; None where there is none."""
    if found is None or walk.reserving.makes_room_for(case.job, found):
        return found
    is_trial = walk.probation.may_be_refused(case.job, case.answers)
    return walk.reserving.passing(
        case.job, found, cluster, lambda other: placed(case, asked, other, walk), is_trial=is_trial
    )
