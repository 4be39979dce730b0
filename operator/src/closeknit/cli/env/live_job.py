"""A job of a running cluster with what its environment follows from, as kubectl would reach it."""

from contextlib import suppress

from closeknit.cli.input.given import Reach
from closeknit.cli.live.cluster_connection import no_planner
from closeknit.cli.live.cluster_objects import all_of, asking, resource_of
from closeknit.cluster.store.watched_kinds import KINDS, ClusterObject, Stream
from closeknit.kube.errors import Forbidden, NotFound

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
            found += [each async for each in all_of(api, jobs, field_selector=f"metadata.name={name}")]
        else:
            with suppress(NotFound):
                found.append(jobs.convert(await api.get(resource_of(jobs), name, namespace=namespace)))
        try:
            for stream in _READ:
                found += [each async for each in all_of(api, kinds[stream])]
        except Forbidden as error:
            raise no_planner(error) from None
    return namespace, [each for each in found if each is not None]
