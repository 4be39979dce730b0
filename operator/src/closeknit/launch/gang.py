"""What launch needs to know of one attempt of a job: its nodes in rank order, and how their ranks talk."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from closeknit.api.clustertopology import Fabric
from closeknit.api.names import (
    API_VERSION,
    ATTEMPT_LABEL,
    INDEX_LABEL,
    JOB_LABEL,
    ROLE_LABEL,
    TRAINING_JOB,
    Role,
    child_name,
    service_name,
)
from closeknit.api.nodetopology import Transport
from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob_status import Binding

Manifest = dict[str, Any]
"""A Kubernetes object as JSON."""


@dataclass(frozen=True, slots=True)
class RankNode:
    """One node of the gang, which gets one worker Pod with all the gang's GPUs there."""

    node: str
    index: int
    """Node rank, and index of the Pod."""
    uuids: tuple[str, ...]
    """GPUs in local-rank order, one for each rank; empty strings where the machine does not tell."""
    first_rank: int
    """Global rank of the first GPU; ranks are contiguous."""
    binding: Binding
    nics: tuple[str, ...] = ()
    """RDMA NICs of these ranks as name:port; empty where the gang does not use RDMA."""
    rdma_resource: str | None = None
    """The node's resource that exposes the NICs, for example rdma/hca_shared_devices_a."""
    transport: Transport | None = None
    """Transport of the NICs."""

    @property
    def rank_count(self) -> int:
        """Ranks on this node, which is processes of the launcher."""
        return len(self.uuids)


@dataclass(frozen=True, slots=True)
class Gang:
    """One attempt of a job on the nodes that are booked for it. nodes[i].index is i."""

    job: TrainingJob
    attempt: int
    nodes: tuple[RankNode, ...]
    fabric: Fabric
    ipc_lock: bool = True
    """Whether the namespace's Pod Security level admits the capability IPC_LOCK (baseline and restricted do not)."""

    @property
    def uses_rdma(self) -> bool:
        """Whether ranks of different nodes talk over verbs: on every node or on none, as all must speak one net."""
        return len(self.nodes) > 1 and all(node.nics and node.rdma_resource for node in self.nodes)

    @property
    def service(self) -> str:
        """Name of the attempt's headless Service, which makes the Pods' host names resolvable."""
        return service_name(self.job.metadata.name, self.attempt)

    def pod(self, index: int) -> str:
        """Name of a worker Pod, of its host and of its claim."""
        return child_name(self.job.metadata.name, self.attempt, Role.WORKER, index)

    @property
    def coordinator(self) -> str:
        """Host name of node rank 0 for every Pod of the gang. The Pods' search list adds the cluster's domain, which
        nobody tells us."""
        return f"{self.pod(0)}.{self.service}.{self.job.key.namespace}.svc"

    @property
    def labels(self) -> dict[str, str]:
        """Labels of everything that this attempt has."""
        return {JOB_LABEL: self.job.metadata.name, ATTEMPT_LABEL: str(self.attempt)}

    def worker_labels(self, index: int) -> dict[str, str]:
        """Labels of one worker Pod and of its claim."""
        return {**self.labels, ROLE_LABEL: Role.WORKER.value, INDEX_LABEL: str(index)}

    @property
    def owner(self) -> Manifest:
        """Owner reference to the job. blockOwnerDeletion would need a right on trainingjobs/finalizers for nothing."""
        return {
            "apiVersion": API_VERSION,
            "kind": TRAINING_JOB,
            "name": self.job.metadata.name,
            "uid": self.job.metadata.uid or "",
            "controller": True,
        }

    def metadata(self, name: str, labels: Mapping[str, str], owner: Manifest) -> Manifest:
        """Metadata of a child."""
        return {
            "name": name,
            "namespace": self.job.key.namespace,
            "labels": dict(labels),
            "ownerReferences": [owner],
        }
