"""The parameter servers of a job: their nodes, and their needs there.

They run on the nodes of the workers, dealt out in rank order, so that gradients enter and leave by the same NICs.
"""

from collections.abc import Mapping
from typing import Any

from closeknit.api.trainingjob import TrainingJobSpec
from closeknit.cluster.booking.gang_sidecar import server_needs, worker_needs
from closeknit.cluster.objects.pod_requests import Needs


def dealt(replicas: int, nodes: int) -> tuple[int, ...]:
    """The node rank whose node each server shares."""
    return tuple(server % nodes for server in range(replicas))


def needs_on_a_node(spec: TrainingJobSpec) -> Needs:
    """What the Pods of a job need of each of its nodes besides GPUs: a worker, and as many servers as any has. Where
    the number of nodes is left open, one may have them all."""
    worker = worker_needs(spec)
    if spec.parameter_servers is None:
        return worker
    nodes = spec.gpus // (spec.topology.gpus_per_node or spec.gpus)
    most = -(-spec.parameter_servers.replicas // nodes)
    total = dict(worker)
    for resource, amount in server_needs(spec):
        total[resource] = total.get(resource, 0) + most * amount
    return tuple(sorted(total.items()))


def with_tolerations(server: Mapping[str, Any], worker: Mapping[str, Any]) -> list[Any]:
    """A server's tolerations: also all of its worker's, because they share a node."""
    own = list(server.get("tolerations") or [])
    return [*own, *(each for each in worker.get("tolerations") or [] if each not in own)]
