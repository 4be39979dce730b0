"""A job of a running cluster with what its environment follows from, as kubectl would reach it."""

from collections.abc import AsyncIterator
from contextlib import suppress

from closeknit.cli.asking import asking
from closeknit.cli.given import Reach
from closeknit.cluster.kinds import KINDS, ClusterObject, Kind, Stream
from closeknit.kube.api import Resource
from closeknit.kube.errors import NotFound
from closeknit.kube.http import HttpApi

_READ = (Stream.NODES, Stream.NODE_TOPOLOGIES, Stream.CLUSTER_TOPOLOGIES)


async def objects(name: str, reach: Reach) -> tuple[str, list[ClusterObject]]:
    """The namespace that is meant, and what there is: the job of this name, of all namespaces where that is asked for;
    all nodes and machines, and the site's word on its fabric. Raises NotThere."""
    kinds = {kind.stream: kind for kind in KINDS}
    jobs = kinds[Stream.TRAINING_JOBS]
    found: list[ClusterObject | None] = []
    async with asking(reach, missing="the cluster knows no TrainingJobs: is closeknit installed there?") as api:
        namespace = reach.namespace or api.namespace
        if reach.everywhere:
            found += [each async for each in _all(api, jobs, field_selector=f"metadata.name={name}")]
        else:
            with suppress(NotFound):
                found.append(jobs.convert(await api.get(_resource(jobs), name, namespace=namespace)))
        for stream in _READ:
            found += [each async for each in _all(api, kinds[stream])]
    return namespace, [each for each in found if each is not None]


async def _all(api: HttpApi, kind: Kind, field_selector: str | None = None) -> AsyncIterator[ClusterObject | None]:
    token: str | None = None
    while True:
        page = await api.list(_resource(kind), continue_token=token, field_selector=field_selector)
        for item in page.items:
            yield kind.decode(item)
        token = page.continue_token
        if token is None:
            return


def _resource(kind: Kind) -> Resource:
    return Resource(kind.group, kind.version, kind.plural, namespaced=kind.namespaced)
