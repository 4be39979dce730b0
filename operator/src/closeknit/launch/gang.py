"""What launch needs to know of one attempt of a job: its Pods in rank order, and how their ranks talk."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
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
from closeknit.api.trainingjob import PodTemplate
from closeknit.launch.member import Member
from closeknit.launch.network import Net, net, share_nvlink

Manifest = dict[str, Any]
"""A Kubernetes object as JSON. Manifests of one gang may share parts: they are read and sent, never changed."""


@dataclass(frozen=True)
class Gang:
    """One attempt of a job on the nodes that are booked for it. What all its Pods share is worked out once and kept."""

    job: TrainingJob
    attempt: int
    members: tuple[Member, ...]
    """The workers in node-rank order, so that members[i].index is i, then those that have no GPUs."""
    fabric: Fabric
    ipc_lock: bool = True
    """Whether the namespace's Pod Security level admits the capability IPC_LOCK (baseline and restricted do not)."""

    @cached_property
    def workers(self) -> tuple[Member, ...]:
        """The members that have the ranks, in node-rank order."""
        return tuple(member for member in self.members if member.role is Role.WORKER)

    @cached_property
    def world_size(self) -> int:
        """Ranks of all workers."""
        return sum(worker.rank_count for worker in self.workers)

    @cached_property
    def uses_rdma(self) -> bool:
        """Whether ranks of different nodes talk over verbs: on every node or on none, as all must speak one net."""
        return self.net is Net.VERBS

    @cached_property
    def net(self) -> Net:
        """What the ranks of different nodes talk over."""
        return net(self.workers, self.job.spec.network.rdma)

    @cached_property
    def shares_nvlink(self) -> bool:
        """Whether some of its nodes reach each other over NVLink."""
        return share_nvlink(self.workers)

    @cached_property
    def transports(self) -> frozenset[Transport | None]:
        """Transports of the workers' NICs."""
        return frozenset(worker.transport for worker in self.workers)

    @property
    def service(self) -> str:
        """Name of the attempt's headless Service, which makes the Pods' host names resolvable."""
        return service_name(self.job.metadata.name, self.attempt)

    def name(self, member: Member) -> str:
        """Name of a member's Pod, of its host and of its claim."""
        return child_name(self.job.metadata.name, self.attempt, member.role, member.index)

    def host(self, member: Member) -> str:
        """Host name of a member for every Pod of the gang. The Pods' search list adds the cluster's domain, which
        nobody tells us."""
        return f"{self.name(member)}.{self.service}.{self._namespace}.svc"

    @cached_property
    def coordinator(self) -> str:
        """Host name of node rank 0."""
        return self.host(self.members[0])

    def template(self, role: Role) -> PodTemplate:
        """The user's Pod template for the members of one role. Parameter servers have one of their own."""
        servers = self.job.spec.parameter_servers
        return servers.template if role is Role.PARAMETER_SERVER and servers else self.job.spec.template

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """Labels of everything that this attempt has."""
        return {JOB_LABEL: self.job.metadata.name, ATTEMPT_LABEL: str(self.attempt)}

    def member_labels(self, member: Member) -> dict[str, str]:
        """Labels of one Pod and of its claim."""
        return {**self.labels, ROLE_LABEL: member.role.value, INDEX_LABEL: str(member.index)}

    @cached_property
    def owner(self) -> Manifest:
        """Owner reference to the job. blockOwnerDeletion would need a right on trainingjobs/finalizers for nothing."""
        return {
            "apiVersion": API_VERSION,
            "kind": TRAINING_JOB,
            "name": self.job.metadata.name,
            "uid": self.job.metadata.uid or "",
            "controller": True,
        }

    def metadata(self, name: str, labels: Mapping[str, str], owner: Manifest | None = None) -> Manifest:
        """Metadata of a child; without an owner that of a Pod's child, whose owner has no uid yet."""
        metadata = {"name": name, "namespace": self._namespace, "labels": dict(labels)}
        return metadata if owner is None else {**metadata, "ownerReferences": [owner]}

    @cached_property
    def _namespace(self) -> str:
        return self.job.key.namespace
