"""The cluster at a glance, as a ClusterTopology tells it and `closeknit status` shows it."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from closeknit.api.cluster_summary import MOST_DOMAINS, ClusterSummary, DomainSummary, GpuCounts, WaitSummary
from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob_status import State
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node.node import NodeView
from closeknit.lifecycle.overview.counts import gpus_by_state, jobs_of, waits_for, waits_since
from closeknit.lifecycle.status.conditions import timestamp
from closeknit.placement.fragmentation import Fragmentation


def summary(cluster: Cluster, free: Fragmentation | None, now: datetime, version: str) -> ClusterSummary:
    """What there is now. `free` None: how free GPUs are scattered was not counted yet."""
    nodes = [view for view in cluster.nodes.values() if view.exclusion is None or not view.exclusion.has_no_gpus]
    gpus: Counter[str] = Counter()
    for view in nodes:
        gpus.update(gpus_by_state(view))
    excluded = Counter(view.exclusion.reason.value for view in nodes if view.exclusion is not None)
    jobs = Counter((job.status.state or State.QUEUED).value for job in jobs_of(cluster))
    return ClusterSummary(
        told=timestamp(now),
        operator_version=version,
        nodes=len(nodes),
        excluded_nodes=dict(sorted(excluded.items())),
        gpus=GpuCounts(**{state: gpus[state] for state in GpuCounts.model_fields}),
        largest_gang=None if free is None else free.largest_gang,
        largest_inside={} if free is None else dict(free.largest_inside),
        islands={} if free is None else {str(size): number for size, number in free.islands.items()},
        domains=_domains(cluster, nodes),
        jobs={state.value: jobs[state.value] for state in State if jobs[state.value]},
        waiting=_waiting(cluster, now),
    )


def news_of(found: ClusterSummary, stored: ClusterSummary | None) -> ClusterSummary:
    """The stored one where nothing but the moment is another. One without GPUs in MIG mode may be what a CRD has kept
    that is older than this number, which never changes alone: it would be written at each look."""
    if stored is None:
        return found
    gpus = found.gpus if stored.gpus.mig else found.gpus.model_copy(update={"mig": 0})
    return stored if found.model_copy(update={"told": stored.told, "gpus": gpus}) == stored else found


def _domains(cluster: Cluster, nodes: Iterable[NodeView]) -> list[DomainSummary]:
    """Of the innermost level but host."""
    if len(cluster.levels) < 2:
        return []
    inside: dict[str, list[NodeView]] = {}
    for view in nodes:
        domain = view.domains[-2]
        if domain is not None:
            inside.setdefault(domain, []).append(view)
    found = [
        DomainSummary(
            name=name,
            nodes=len(views),
            gpus=sum(len(view.machine.gpus) for view in views if view.machine is not None),
            free_gpus=sum(view.open_gpus for view in views),
        )
        for name, views in inside.items()
    ]
    return sorted(found, key=lambda each: (-each.free_gpus, each.name))[:MOST_DOMAINS]


def _waiting(cluster: Cluster, now: datetime) -> list[WaitSummary]:
    jobs: Counter[str] = Counter()
    gpus: Counter[str] = Counter()
    oldest: dict[str, datetime] = {}
    for job in jobs_of(cluster):
        if job.status.pending is None and job.status.state not in {None, State.QUEUED}:
            continue
        reason, since = waits_for(job), waits_since(job, now)
        jobs[reason] += 1
        gpus[reason] += job.spec.gpus if isinstance(job, TrainingJob) else 0
        if since is not None:
            oldest[reason] = min(since, oldest.get(reason, since))
    found = [
        WaitSummary(
            reason=reason,
            jobs=number,
            gpus=gpus[reason],
            since=timestamp(oldest[reason]) if reason in oldest else None,
        )
        for reason, number in jobs.items()
    ]
    return sorted(found, key=lambda each: (-each.gpus, each.reason))
