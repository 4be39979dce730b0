"""Spare nodes of a job: held near its gang, without Pods, and taken first when one of its nodes is lost.

They are found once the gang has its own nodes, as nodes that would replace some of these, so that they lie as near as a
replacement would. A gang starts with fewer of them, or with none, and never takes a lemon for one. They are looked for
when the gang is booked, and again whenever a lost node of it is replaced.
"""

from collections.abc import Iterable
from dataclasses import replace

from closeknit.api.affinity import NAME_FIELD, NodeAffinity, NodeRequirement, Operator, Term
from closeknit.api.objects import TrainingJob
from closeknit.cluster.booking.booking import Booking, assignments, encoded_spares, spares
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.store.watched_kinds import change
from closeknit.lifecycle.booking.booked_placement import assumed, booked_share
from closeknit.placement.replacement_nodes import not_replaced
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import Request
from closeknit.scheduling.policy.policy_context import Walk

# To compare every way to take sixteen nodes costs half a second on 5,000 (replacement_nodes.py), and any four are near.
_AT_ONCE = 4


def with_spares(job: TrainingJob, found: Placement, asked: Request, cluster: Cluster, walk: Walk) -> Placement:
    """The placement with as many of its spares as can be had beside it in `cluster`, which holds nothing of the job."""
    wanted = job.spec.spares
    if not wanted:
        return found
    asked, cluster = walk.lemons.without(replace(asked, spare_queues=frozenset()), cluster)
    taken = list(found.spares)
    shares = list(map(booked_share, (*found.shares, *taken)))
    while len(taken) < wanted:
        held = cluster.with_job(assumed(job, replace(found, spares=tuple(taken))))
        like = max(shares[: len(found.shares)], key=lambda share: len(share.gpus))
        missing = [replace(like, lost=True)] * min(_AT_ONCE, wanted - len(taken))
        if not_replaced(held, asked, (*shares, *missing)) is not None:
            break
        new = walk.questions.replaced(asked, (*shares, *missing), held).shares
        taken += [new[position] for position in sorted(new)]
        shares += [booked_share(new[position]) for position in sorted(new)]
        if len(new) < len(missing):
            break
    return replace(found, spares=tuple(taken))


def unspared(job: TrainingJob, cluster: Cluster) -> Cluster:
    """The cluster without the spares of a job; the same object where it has none."""
    return all_unspared((job,), cluster)


def all_unspared(jobs: Iterable[TrainingJob], cluster: Cluster) -> Cluster:
    """The cluster without the spares of these jobs; the same object where they have none."""
    placed = ((job, job.status.placement) for job in jobs)
    without = [
        job.model_copy(
            update={"status": job.status.model_copy(update={"placement": stored.model_copy(update={"spares": None})})}
        )
        for job, stored in placed
        if stored is not None and stored.spares
    ]
    return cluster.after(map(change, without)) if without else cluster


def with_spares_of(job: TrainingJob, before: TrainingJob) -> TrainingJob:
    """The job with the spares that it had before, too, but for those that are shares of it now."""
    placement, had = job.status.placement, before.status.placement
    if placement is None or had is None or not had.spares:
        return job
    held = {node.name for node in (*assignments(placement), *(placement.spares or ()))}
    left = [share for share in spares(had) if share.node not in held]
    told = encoded_spares((*spares(placement), *left))
    status = job.status.model_copy(update={"placement": placement.model_copy(update={"spares": told})})
    return job.model_copy(update={"status": status})


def of_spares(asked: Request, held: Booking, others: frozenset[str] = frozenset()) -> Request:
    """The request for nothing but the spares of a booking, and these nodes."""
    return only_on(asked, others.union(share.node for share in held.spares))


def only_on(asked: Request, nodes: frozenset[str]) -> Request:
    """The request for nothing but these nodes."""
    only = NodeAffinity((Term((), (NodeRequirement(NAME_FIELD, Operator.IN, nodes),)),))
    return replace(asked, volumes=asked.volumes | {only})


def with_labelled(only: Request, cluster: Cluster) -> Request:
    """The request for nothing but some nodes, whatever their labels have come to say meanwhile: it may hold them."""
    return replace(only, spare_queues=frozenset(cluster.queue_spares))
