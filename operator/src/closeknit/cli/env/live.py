"""A job of a running cluster with what its environment follows from, as kubectl would reach it."""

from collections.abc import AsyncIterator
from pathlib import Path

from closeknit.api.names import JobKey
from closeknit.cli.asking import asking
from closeknit.cluster.kinds import KINDS, ClusterObject, Kind, Stream
from closeknit.kube.api import Resource
from closeknit.kube.http import HttpApi

_READ = (Stream.NODES, Stream.NODE_TOPOLOGIES, Stream.CLUSTER_TOPOLOGIES)


async def objects(job: JobKey, kubeconfig: Path | None) -> list[ClusterObject]:
    """The job, all nodes and machines, and the site's word on its fabric. Raises NotThere."""
    kinds = {kind.stream: kind for kind in KINDS}
    async with asking(kubeconfig, missing=f"the cluster has no TrainingJob {job}") as api:
        jobs = kinds[Stream.TRAINING_JOBS]
        found = [jobs.convert(await api.get(_resource(jobs), job.name, namespace=job.namespace))]
        for stream in _READ:
            found += [each async for each in _all(api, kinds[stream])]
    return [each for each in found if each is not None]


async def _all(api: HttpApi, kind: Kind) -> AsyncIterator[ClusterObject | None]:
    token: str | None = None
    while True:
        page = await api.list(_resource(kind), continue_token=token)
        for item in page.items:
            yield kind.decode(item)
        token = page.continue_token
        if token is None:
            return


def _resource(kind: Kind) -> Resource:
    return Resource(kind.group, kind.version, kind.plural, namespaced=kind.namespaced)
