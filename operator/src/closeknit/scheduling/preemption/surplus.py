"""The surplus of elastic jobs: one that would have to make room goes on with fewer GPUs where it can."""

from dataclasses import replace

from closeknit.api.objects import TrainingJob
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.attempt.avoided_nodes import avoided_nodes
from closeknit.lifecycle.booking.booked_placement import assumed
from closeknit.lifecycle.booking.cannot_start import too_large, too_many
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import NOBODY, Request, request
from closeknit.scheduling.elastic.sizes import fewer, largest
from closeknit.scheduling.policy.admit import chosen
from closeknit.scheduling.policy.policy_context import Walk
from closeknit.scheduling.preemption.trial_placement import placed
from closeknit.scheduling.queue.entries import Case
from closeknit.scheduling.victims.victim_search import ChosenVictims

# Of a preemption: for each of them the gang may be placed once more.
MOST_SPARED = 4


def smaller(job: TrainingJob, sizes: range, cluster: Cluster, walk: Walk) -> Placement | None:
    """Where a job goes on with the largest of these sizes that fits, in a cluster in which it holds nothing."""
    if not sizes:
        return None
    away = avoided_nodes(job, cluster, walk.now)
    there = cluster.without(away.devices)
    asked = replace(request(NOBODY, job.spec, cluster.volumes_of(job).required), avoided=away.nodes)
    return largest(sizes, asked, lambda size: _placed(job, replace(asked, gpus=size), there, walk), there)


def sparing(case: Case, asked: Request, made: ChosenVictims, without: Cluster, walk: Walk) -> ChosenVictims:
    """The room that others make, placed so that elastic ones among them can go on with fewer GPUs, where that is
    possible. `without` is the cluster without all of them."""
    found, stay = made.placement, list[TrainingJob]()
    elastic = [each for each in made.victims if fewer(each.job.spec, each.booking.gpus)]
    for victim in elastic[:MOST_SPARED]:
        beside = without
        for job in stay:
            beside = beside.with_job(job)
        sizes = fewer(victim.job.spec, victim.booking.gpus)
        rest = smaller(victim.job, sizes, beside.with_job(assumed(case.job, found)), walk)
        if rest is None:  # it takes its least size first, and the gang what is left
            rest = smaller(victim.job, sizes[:1], beside, walk)
            other = None if rest is None else placed(case, asked, beside.with_job(assumed(victim.job, rest)), walk)
            if rest is None or other is None:
                continue
            found = other
        stay.append(assumed(victim.job, rest))
    return replace(made, placement=found)


def _placed(job: TrainingJob, asked: Request, cluster: Cluster, walk: Walk) -> Placement | None:
    found = walk.questions.placed(asked, cluster)
    if found is None:
        return None
    volumes = cluster.volumes_of(job)
    best = chosen(asked, found, volumes.choices, cluster, walk)
    return best if too_many(job, best, volumes) is None and too_large(job, best, cluster) is None else None
