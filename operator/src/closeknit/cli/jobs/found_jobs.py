"""Which jobs are meant, and what they say: of a running cluster, or of a file of its objects."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from closeknit.api.names import DEFAULT_NAMESPACE, JOB_LABEL
from closeknit.api.text.printable import printable
from closeknit.cli.input.given import Reach
from closeknit.cli.input.not_there import NotThere
from closeknit.cli.input.standard_input import named
from closeknit.cli.jobs.told_job import ToldJob, ToldMetadata, told, told_of
from closeknit.cli.jobs.told_pod import ToldPod
from closeknit.cli.live.cluster_connection import NOT_INSTALLED, PODS, TRAINING_JOBS, reached
from closeknit.kube.errors import Forbidden, NotFound
from closeknit.kube.http.http_api import HttpApi

if TYPE_CHECKING:
    from closeknit.cluster.store.watched_kinds import ClusterObject

_MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class FoundJobs:
    """Jobs by namespace and name, and where they were looked for."""

    jobs: tuple[ToldJob, ...]
    namespace: str | None
    """None: in all namespaces."""
    objects: "Sequence[ClusterObject] | None" = None
    """All of the file that they are of; None of a running cluster."""

    @property
    def scope(self) -> str:
        """For people."""
        return "all namespaces" if self.namespace is None else f"namespace {self.namespace}"


@dataclass(frozen=True, slots=True)
class FoundJob:
    """One job with its Pods."""

    job: ToldJob
    pods: tuple[ToldPod, ...] | None
    """Of its present attempt, by name; None where they may not be read."""
    objects: "Sequence[ClusterObject] | None" = None
    """As FoundJobs has it."""


async def found_jobs(reach: Reach, cluster: Path | None) -> FoundJobs:
    """Raises NotThere and BadInput."""
    if cluster is not None:
        reach.check_not_asked("--cluster")
        namespace = None if reach.everywhere else reach.namespace or DEFAULT_NAMESPACE
        jobs, objects = _of_file(cluster)
        return FoundJobs(tuple(each for each in jobs if namespace in (None, each.key.namespace)), namespace, objects)
    async with reached(reach, missing=NOT_INSTALLED) as api:
        return await asked_jobs(api, reach)


async def asked_jobs(api: HttpApi, reach: Reach) -> FoundJobs:
    """Those of a running cluster: as a cache of the API server remembers them, which is a moment old at most."""
    namespace = None if reach.everywhere else reach.namespace or api.namespace
    page = await api.list(TRAINING_JOBS, namespace=namespace, cached=True)
    jobs = sorted(map(read, page.items), key=lambda job: job.key)
    return FoundJobs(tuple(jobs), namespace)


async def found_job(name: str, reach: Reach, cluster: Path | None) -> FoundJob:
    """One job by its name. Raises NotThere, which names the jobs that are there, and BadInput."""
    if cluster is not None:
        return _in_file(name, reach, cluster)
    async with reached(reach, missing=NOT_INSTALLED) as api:
        return await asked_job(api, name, reach)


async def asked_job(api: HttpApi, name: str, reach: Reach) -> FoundJob:
    """The same, of a running cluster."""
    job = await _asked(api, name, reach)
    pods: tuple[ToldPod, ...] | None = None
    with suppress(Forbidden):
        pods = await asked_pods(api, job)
    return FoundJob(job, pods)


async def asked_pods(api: HttpApi, job: ToldJob) -> tuple[ToldPod, ...]:
    """Those of its present attempt, by name. Raises Forbidden."""
    page = await api.list(PODS, namespace=job.key.namespace, label_selector=f"{JOB_LABEL}={job.key.name}", cached=True)
    return _present(job, map(ToldPod.of_json, page.items))


async def _asked(api: HttpApi, name: str, reach: Reach) -> ToldJob:
    if not reach.everywhere:
        namespace = reach.namespace or api.namespace
        try:
            return told_of(await api.get(TRAINING_JOBS, name, namespace=namespace))
        except NotFound:
            there = sorted(await api.names(TRAINING_JOBS, namespace=namespace))
            raise NotThere(
                printable(f"there is no TrainingJob {name} in namespace {namespace}; {_these(there)}")
            ) from None
    page = await api.list(TRAINING_JOBS, field_selector=f"metadata.name={name}")
    return _only(name, [read(each) for each in page.items], "the cluster")


def read(document: bytes) -> ToldJob:
    """One job. Of one whose words are of another shape the name is left."""
    try:
        return told(document)
    except msgspec.ValidationError as error:
        head = msgspec.json.decode(document, type=_Head)
        return ToldJob(head.metadata, unreadable=printable(str(error)))


class _Head(msgspec.Struct):
    metadata: ToldMetadata


def _these(names: Sequence[str]) -> str:
    if not names:
        return "there is no job at all: -A looks in all namespaces"
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return (
        f"there {'is' if len(names) == 1 else 'are'} {', '.join(names[:_MOST_NAMED])}{more}; -A looks in all namespaces"
    )


def _only(name: str, jobs: Sequence[ToldJob], where: str) -> ToldJob:
    if len(jobs) == 1:
        return jobs[0]
    if not jobs:
        raise NotThere(printable(f"{where} has no TrainingJob {name} in any namespace"))
    places = ", ".join(sorted(job.key.namespace for job in jobs))
    raise NotThere(printable(f"{where} has a TrainingJob {name} in each of {places}: name one by --namespace"))


def _of_file(file: Path) -> "tuple[list[ToldJob], Sequence[ClusterObject]]":
    from closeknit.cli.input.cluster_file import cluster_file  # noqa: PLC0415 - who asks a cluster needs no models
    from closeknit.cli.jobs.file_jobs import jobs_of  # noqa: PLC0415 - so

    objects = cluster_file(file).objects
    return jobs_of(objects), objects


def _in_file(name: str, reach: Reach, file: Path) -> FoundJob:
    from closeknit.cli.jobs.file_jobs import pods_of  # noqa: PLC0415 - as in _of_file

    reach.check_not_asked("--cluster")
    (there, objects), where = _of_file(file), named(file)
    if reach.everywhere:
        job = _only(name, [each for each in there if each.key.name == name], where)
    else:
        namespace = reach.namespace or DEFAULT_NAMESPACE
        inside = {each.key.name: each for each in there if each.key.namespace == namespace}
        if name not in inside:
            words = f"{where} has no TrainingJob {name} in namespace {namespace}; {_these(sorted(inside))}"
            raise NotThere(printable(words))
        job = inside[name]
    return FoundJob(job, _present(job, pods_of(objects, job.key)), objects)


def _present(job: ToldJob, pods: "Sequence[ToldPod] | map[ToldPod]") -> tuple[ToldPod, ...]:
    attempt = job.status.attempt or 1
    mine = [each for each in pods if each.child is not None and each.child.attempt == attempt]
    return tuple(sorted(mine, key=lambda pod: pod.name))
