"""Gangs to launch, and the environments that launch gives them."""

from typing import Any

from closeknit.api.clustertopology import Fabric
from closeknit.api.names import Role
from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob import Framework
from closeknit.api.trainingjob_status import Binding
from closeknit.launch.environment.environment import container_environment
from closeknit.launch.gang import Gang
from closeknit.launch.member import Member

CONTAINER = {"name": "trainer", "image": "train", "resources": {"limits": {"cpu": "16"}}}


def gang(framework: Framework, shares: tuple[int, ...], servers: int = 0, *, networks: str = "", **spec: Any) -> Gang:
    """A gang with so many GPUs on each of its nodes; `networks` are further ones of its Pods, as Multus reads them."""
    annotations = {"k8s.v1.cni.cncf.io/networks": networks} if networks else {}
    fields: dict[str, Any] = {
        "gpus": sum(shares),
        "framework": framework,
        "template": {"metadata": {"annotations": annotations}, "spec": {"containers": [CONTAINER]}},
        **spec,
    }
    if servers:
        fields["parameterServers"] = {"replicas": servers, "template": {"spec": {"containers": [CONTAINER]}}}
    metadata = {"name": "train", "namespace": "ml", "uid": "b3e7a5c0-0000-4000-8000-000000000000"}
    job = TrainingJob.parse_strictly({"metadata": metadata, "spec": fields})
    workers = tuple(
        Member(
            f"node-{index}",
            index,
            tuple(f"GPU-{index}-{gpu}" for gpu in range(count)),
            sum(shares[:index]),
            Binding.WHOLE_NODE,
        )
        for index, count in enumerate(shares)
    )
    on_cpus = tuple(Member("cpu", index, role=Role.PARAMETER_SERVER) for index in range(servers))
    return Gang(job, 1, (*workers, *on_cpus), Fabric())


def environments(of: Gang) -> list[dict[str, str]]:
    """That of each member's trainer, in the gang's order."""
    return [container_environment(of, index) for index in range(len(of.members))]


def first_ranks(of: Gang) -> list[list[int]]:
    """The plan: the global ranks of each worker."""
    return [list(range(worker.first_rank, worker.first_rank + worker.rank_count)) for worker in of.workers]
