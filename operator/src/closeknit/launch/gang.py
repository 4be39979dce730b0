"""What launch needs to know of one attempt of a job: its Pods in rank order, and how their ranks talk."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from closeknit.api.clustertopology import Fabric, TrafficClass
from closeknit.api.names import (
    API_VERSION,
    ATTEMPT_LABEL,
    INDEX_LABEL,
    JOB_LABEL,
    MNNVL,
    ROLE_LABEL,
    TRAINING_JOB,
    Role,
    child_name,
    service_name,
)
from closeknit.api.nodetopology import Transport
from closeknit.api.objects import TrainingJob
from closeknit.api.text.nccl_version import NcclVersion
from closeknit.api.trainingjob import PodTemplate
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.objects.nic_exposure import asked
from closeknit.launch.cloud_platforms import Platform
from closeknit.launch.member import Member
from closeknit.launch.network import Net, net, share_nvlink
from closeknit.launch.remedy import Remedy
from closeknit.launch.template import trainer, trainer_index

# Annotations by which people and GKE give a Pod further interfaces; Multus reads the first.
MULTUS_NETWORKS = "k8s.v1.cni.cncf.io/networks"
NETWORK_ANNOTATIONS = (MULTUS_NETWORKS, "networking.gke.io/interfaces")
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
    remedies: frozenset[Remedy] = frozenset()
    """What attempts before have called for."""
    imex_with: frozenset[Binding] = frozenset()
    """Of which bindings Pods can have an IMEX channel, too."""
    sidecar_image: str = ""
    """Image of the sidecar by which the gang restarts in place; empty where it does not."""
    nccl_version: NcclVersion | None = None
    """Version of NCCL in its Pods, as one of the job's has told; None where that is not known."""
    predicted_gb_s: float | None = None
    """Bus bandwidth of an all-reduce over all ranks, as placement predicts it; None where that is unknown."""

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
        """Whether its Pods are given RDMA NICs: on every node or on none, as all must speak one net."""
        return self.is_spread and all(worker.nics and worker.rdma_resource for worker in self.workers)

    @property
    def gives_cpus(self) -> bool:
        """Whether trainers get CPUs that their template does not ask for."""
        return any(worker.cpus is not None for worker in self.workers)

    @property
    def is_spread(self) -> bool:
        """Whether it has ranks on more than one node."""
        return len(self.workers) > 1

    @cached_property
    def net(self) -> Net:
        """What the ranks of different nodes talk over."""
        return net(self.workers, self.job.spec.network.rdma)

    @cached_property
    def shares_nvlink(self) -> bool:
        """Whether some of its nodes reach each other over NVLink."""
        return share_nvlink(self.workers)

    @cached_property
    def uses_imex_channels(self) -> bool:
        """Whether its Pods are given IMEX channels: its nodes are all of one NVLink domain, over whose border NCCL
        would hang, it has as many GPUs of each as placement takes for that (see Joint there), and the user has no
        word of his own on it.
        """
        return (
            self.shares_nvlink
            and all(worker.binding in self.imex_with and worker.has_most_gpus for worker in self.workers)
            and len({(worker.nvlink_domain, worker.clique_told) for worker in self.workers}) == 1
            and MNNVL not in self.users_environment(Role.WORKER)
        )

    @cached_property
    def has_more_interfaces(self) -> bool:
        """Whether its Pods are known to have more network interfaces than that of the Pod network."""
        named = self.template(Role.WORKER).metadata.annotations
        are_given = self.uses_rdma and any(
            worker.networks or worker.nic_addresses or worker.has_functions for worker in self.workers
        )
        return are_given or any(name in named for name in NETWORK_ANNOTATIONS)

    def asks_for_functions(self, member: Member) -> bool:
        """Whether the template itself asks for SR-IOV functions that the member would be given: then what it says
        holds, and nothing is added."""
        return any(each.resource in self._asked for each in member.functions)

    @cached_property
    def _asked(self) -> frozenset[str]:
        return frozenset(asked(self.template(Role.WORKER).spec))

    @cached_property
    def on_host_network(self) -> bool:
        """Whether its Pods use the network of their nodes: the template says so, or the job consents, and RoCE NICs
        that Pods share have their addresses there, where no interface of its own brings one into a Pod."""
        return self.asks_for_host_network or (
            self.job.spec.network.allow_host_network
            and self.net is Net.VERBS
            and Transport.ROCE in self.transports
            and all(worker.nic_resources and not worker.networks for worker in self.workers)
            and not self.has_more_interfaces
        )

    @cached_property
    def asks_for_host_network(self) -> bool:
        """Whether the template itself puts its Pods there."""
        return self.template(Role.WORKER).spec.get("hostNetwork") is True

    @property
    def traffic_class(self) -> TrafficClass | None:
        """The site's marking of the traffic class that the job names; None where it names none, or none is declared."""
        named = self.job.spec.network.traffic_class
        return None if named is None else self.fabric.traffic_classes.get(named)

    @property
    def is_marked(self) -> bool:
        """Whether that marking has a value for the transport that the ranks talk over."""
        marking = self.traffic_class
        if marking is None or self.net is not Net.VERBS:
            return False
        return (Transport.ROCE in self.transports and marking.dscp is not None) or (
            Transport.INFINIBAND in self.transports and marking.service_level is not None
        )

    @cached_property
    def platforms(self) -> frozenset[Platform | None]:
        """Platforms of the workers' nodes."""
        return frozenset(worker.platform for worker in self.workers)

    @cached_property
    def transports(self) -> frozenset[Transport | None]:
        """Transports of the workers' NICs."""
        return frozenset(worker.transport for worker in self.workers)

    @property
    def service(self) -> str:
        """Name of the attempt's headless Service, which makes the Pods' host names resolvable."""
        return service_name(self.job.metadata.name, self.attempt)

    def name(self, member: Member) -> str:
        """Name of a member's Pod, and of its claim."""
        return child_name(self.job.metadata.name, self.attempt, member.role, member.index, member.replacement)

    def hostname(self, member: Member) -> str:
        """Host name in a member's Pod: that of the Pods before it, too, by which the others know it."""
        return child_name(self.job.metadata.name, self.attempt, member.role, member.index)

    def host(self, member: Member) -> str:
        """Host name of a member for every Pod of the gang. The Pods' search list adds the cluster's domain, which
        is unknown here."""
        return f"{self.hostname(member)}.{self.service}.{self._namespace}.svc"

    @cached_property
    def coordinator(self) -> str:
        """Host name of node rank 0."""
        return self.host(self.members[0])

    def port(self, member: Member, usual: int) -> int:
        """The port of one Pod: the usual one; where Pods share their node's network, one that no other gang has there.

        It follows from the booking, so that every Pod knows it of every other. The usual ones lie 64 apart or more.
        """
        return usual + member.lowest_gpu if self.on_host_network else usual

    def addresses(self, usual: int) -> tuple[str, ...]:
        """Host and port of every member, in their order. Each Pod of some frameworks is told all of them, so that they
        are worked out once and kept."""
        found = self._addresses.get(usual)
        if found is None:
            found = tuple([f"{self.host(member)}:{self.port(member, usual)}" for member in self.members])
            self._addresses[usual] = found
        return found

    @cached_property
    def _addresses(self) -> dict[int, tuple[str, ...]]:
        return {}

    @cached_property
    def rank_counts(self) -> tuple[int, ...]:
        """Ranks of each worker, in node-rank order."""
        return tuple([worker.rank_count for worker in self.workers])

    def meeting(self, usual: int) -> str:
        """Host and port at which all ranks meet: those of node rank 0."""
        return f"{self.coordinator}:{self.port(self.members[0], usual)}"

    def template(self, role: Role) -> PodTemplate:
        """The user's Pod template for the members of one role. Parameter servers have one of their own."""
        return self._servers if role is Role.PARAMETER_SERVER and self._servers else self._workers

    @cached_property
    def _workers(self) -> PodTemplate:
        return self.job.spec.template.read()

    @cached_property
    def _servers(self) -> PodTemplate | None:
        servers = self.job.spec.parameter_servers
        return servers.template.read() if servers else None

    def users_environment(self, role: Role) -> Mapping[str, Manifest]:
        """The variables that the user sets in the trainers of one role, name -> entry of env; the last of a name, as
        in Kubernetes."""
        return self._users[role]

    @cached_property
    def _users(self) -> Mapping[Role, Mapping[str, Manifest]]:
        roles = {member.role for member in self.members}
        env = {role: trainer(self.template(role).spec).get("env") or [] for role in roles}
        return {role: {entry["name"]: entry for entry in entries} for role, entries in env.items()}

    def trainer_index(self, role: Role) -> int:
        """Index of the container that gets the GPUs, in the template of that role and in its Pods."""
        return trainer_index(self.template(role).spec)

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """Labels of everything that this attempt has."""
        return {**self.job_labels, ATTEMPT_LABEL: str(self.attempt)}

    @cached_property
    def job_labels(self) -> Mapping[str, str]:
        """Labels of what the job has once, for all its attempts."""
        return {JOB_LABEL: self.job.metadata.name}

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
