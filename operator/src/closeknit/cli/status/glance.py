"""What `closeknit status` knows: of a running cluster what its operator has told, of a file what it would tell."""

from importlib.metadata import version
from pathlib import Path

import msgspec

from closeknit.api.names import DEFAULT_CLUSTER_TOPOLOGY, GROUP, VERSION
from closeknit.cli.answers.status_answer import ClusterLine, ClusterStatus, JobCounts, WaitLine
from closeknit.cli.input.given import Reach
from closeknit.cli.jobs.found_jobs import FoundJobs, asked_jobs, found_jobs
from closeknit.cli.jobs.job_lines import counted
from closeknit.cli.jobs.since import waits_since
from closeknit.cli.live.cluster_connection import NOT_INSTALLED, reached
from closeknit.cli.status.told_topology import ToldTopology, cluster_line
from closeknit.kube.api import Resource
from closeknit.kube.errors import Forbidden, NotFound
from closeknit.kube.http.http_api import HttpApi

CLUSTER_TOPOLOGIES = Resource(GROUP, VERSION, "clustertopologies", namespaced=False)
NO_RIGHT = (
    "you may not get clustertopologies: have an administrator bind you to the ClusterRole closeknit-topology-viewer "
    "(the chart's rbac.topologyViewers)"
)
NO_OBJECT = (
    "there is no ClusterTopology default, with which the operator tells it: have an administrator create one; its spec "
    "may be empty"
)
NOT_TOLD = "the operator has not told it yet: it does within half a minute, if one of this version runs"
NODES = Resource("", "v1", "nodes", namespaced=False)
MOST_LISTED = 200  # nodes with all their Pods: some 10 MB
NONE_WAITS = "Undecided"  # as the operator's own counts call a job that it has not decided on


async def cluster_status(reach: Reach, cluster: Path | None) -> tuple[ClusterStatus, FoundJobs]:
    """The answer, and the jobs that it counts. Raises BadInput and NotThere."""
    if cluster is not None:
        jobs = await found_jobs(reach, cluster)
        from closeknit.cli.status.counted_here import of_file  # noqa: PLC0415 - it needs all models

        return _answer(of_file(jobs.objects or ()), None, jobs), jobs
    async with reached(reach, missing=NOT_INSTALLED) as api:
        line, why = await _told(api)
        jobs = await asked_jobs(api, reach)
        return _answer(line, why, jobs), jobs


async def _told(api: HttpApi) -> tuple[ClusterLine | None, str | None]:
    try:
        body = await api.get(CLUSTER_TOPOLOGIES, DEFAULT_CLUSTER_TOPOLOGY)
    except Forbidden:
        return None, NO_RIGHT
    except NotFound:
        return await _counted(api)
    line = cluster_line(msgspec.convert(body, ToldTopology).status)
    return line, NOT_TOLD if line is None else None


async def _counted(api: HttpApi) -> tuple[ClusterLine | None, str | None]:
    """Counted here where the operator has no place to tell it, of a cluster that is small enough to be listed."""
    try:
        if len(await api.names(NODES)) > MOST_LISTED:
            return None, NO_OBJECT
        from closeknit.cli.status.counted_here import of_cluster  # noqa: PLC0415 - it needs all models

        return await of_cluster(api), None
    except Forbidden:
        return None, NO_OBJECT


def _answer(line: ClusterLine | None, why: str | None, found: FoundJobs) -> ClusterStatus:
    waiting: dict[str, list[tuple[int, str | None]]] = {}
    for job in found.jobs:
        pending = job.status.pending
        if pending is not None or job.state == "Queued":
            reason = pending.reason if pending is not None else job.reason or NONE_WAITS
            waiting.setdefault(reason, []).append((job.spec.gpus or 0, waits_since(job)))
    lines = [
        WaitLine(
            reason=reason,
            jobs=len(each),
            gpus=sum(gpus for gpus, _ in each),
            since=min((since for _, since in each if since is not None), default=None),
        )
        for reason, each in waiting.items()
    ]
    lines.sort(key=lambda each: (-each.gpus, each.reason))
    return ClusterStatus(
        client_version=version("closeknit"),
        cluster=line,
        cluster_not_shown=why,
        namespace=found.namespace,
        jobs=JobCounts(states=counted(found.jobs), waiting=tuple(lines)),
    )
