"""The Pods of a gang: the user's template with what the placement adds."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import msgspec

from closeknit.api.affinity import REQUIRED
from closeknit.api.names import GPUS_ANNOTATION, SETTINGS_ANNOTATION, SIZE_ANNOTATION, Role
from closeknit.api.toleration import GPU_TOLERATION, architecture_tolerations
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.booking.parameter_servers import with_tolerations
from closeknit.cluster.objects.nic_exposure import asks_for_nics, share
from closeknit.cluster.objects.pod_requests import needs
from closeknit.launch.environment.environment import environment
from closeknit.launch.frameworks.mounted_files import FILES_PATH, FILES_VOLUME, files_name
from closeknit.launch.frameworks.registry import contract
from closeknit.launch.gang import Gang, Manifest
from closeknit.launch.manifests.annotations import function_networks, network_annotations
from closeknit.launch.manifests.compute_domain import template_name
from closeknit.launch.manifests.preflight_container import FLOOR_VARIABLE, with_preflight
from closeknit.launch.manifests.sidecar_container import (
    VARIABLE,
    is_told_size,
    size_told,
    sizes,
    with_replaced,
    with_sidecar,
)
from closeknit.launch.member import Member
from closeknit.launch.template import CLAIM, IMEX_CLAIM, NIC_CLAIM, SHM_PATH, SHM_VOLUME, trainer_index

_DIGEST_LENGTH = 16  # hexadecimal digits: it is compared with that of one other Pod


def pod(gang: Gang, index: int) -> Manifest:
    """The Pod of gang.members[index], which for a worker is its node rank. check_template must have passed; nothing of
    the template is changed in place.

    It is pinned to its node, and runs as soon as that takes it: under DRA that is once its claim exists.
    """
    return pods(gang, (index,))[0]


def pods(gang: Gang, indexes: Sequence[int]) -> tuple[Manifest, ...]:
    """The Pods of these members in this order, each as `pod` makes it; what they have in common is made once."""
    roles = dict.fromkeys(gang.members[index].role for index in indexes)
    common = {role: _Common.of(gang, role) for role in roles}
    return tuple(_pod(gang, index, common[gang.members[index].role]) for index in indexes)


@dataclass(frozen=True, slots=True)
class _Common:
    """What the Pods of one role are alike in. Fields that differ are there without their value, to keep their place."""

    labels: Manifest
    annotations: Manifest
    spec: Manifest
    affinity: Manifest
    """The user's."""
    trainer: int
    """Index of the container that gets the GPUs."""
    container: Manifest
    """That container."""
    env: list[Any]
    """The user's variables in there."""
    resources: Manifest
    """The user's resources in there."""
    asks_for_nics: bool
    """Whether the user's template asks for rdma/ resources itself."""

    @staticmethod
    def of(gang: Gang, role: Role) -> "_Common":
        """What follows from the gang and the user's template."""
        template = gang.template(role)
        trainer = trainer_index(template.spec)
        container = template.spec["containers"][trainer]
        return _Common(
            labels=template.metadata.labels,
            annotations=template.metadata.annotations,
            spec=_common_spec(gang, role, template.spec, container),
            affinity=template.spec.get("affinity") or {},
            trainer=trainer,
            container=_common_container(gang, role, container),
            env=container.get("env") or [],
            resources=container.get("resources") or {},
            asks_for_nics=asks_for_nics(needs(template.spec)),
        )


def _common_spec(gang: Gang, role: Role, template: Manifest, container: Manifest) -> Manifest:
    spec = {**template, "hostname": "", "subdomain": gang.service, "restartPolicy": "Never", "affinity": {}}
    if gang.job.spec.priority_class_name:
        spec["priorityClassName"] = gang.job.spec.priority_class_name
    worker = gang.template(Role.WORKER).spec
    tolerations = with_tolerations(template, worker)
    usual = (GPU_TOLERATION, *architecture_tolerations(worker))
    spec["tolerations"] = [*tolerations, *(each for each in usual if each not in tolerations)]
    if role is Role.WORKER and gang.on_host_network:
        spec["hostNetwork"] = True
        spec.setdefault("dnsPolicy", "ClusterFirstWithHostNet")  # else the ranks' host names mean nothing
    if not _mounts_shm(container):
        # No sizeLimit: the kubelet sizes it to the Pod's memory limit, or to the node's memory without one. What is
        # written there counts as the container's memory, so that limit stays the one number that bounds both.
        shm = {"name": SHM_VOLUME, "emptyDir": {"medium": "Memory"}}
        spec["volumes"] = [*(template.get("volumes") or []), shm]
    name = files_name(contract(gang), gang)
    if name is not None:
        config = {"name": FILES_VOLUME, "configMap": {"name": name}}
        spec["volumes"] = [*(spec.get("volumes") or []), config]
    return spec


def _common_container(gang: Gang, role: Role, container: Manifest) -> Manifest:
    # What a trainer said last tells why it failed: it stands in the status, and some errors call for another setting.
    trainer = {"terminationMessagePolicy": "FallbackToLogsOnError", **container, "env": [], "resources": {}}
    if not _mounts_shm(container):
        # The runtime's own /dev/shm has 64 MiB, too little for NCCL and for data loaders.
        mount = {"name": SHM_VOLUME, "mountPath": SHM_PATH}
        trainer["volumeMounts"] = [*(container.get("volumeMounts") or []), mount]
    if contract(gang).files(gang):
        config = {"name": FILES_VOLUME, "mountPath": FILES_PATH, "readOnly": True}
        trainer["volumeMounts"] = [*(trainer.get("volumeMounts") or []), config]
    if role is Role.WORKER and gang.uses_rdma and gang.ipc_lock:
        trainer["securityContext"] = _with_ipc_lock(container.get("securityContext") or {})
    return trainer


def _pod(gang: Gang, index: int, common: _Common) -> Manifest:
    member = gang.members[index]
    name = gang.name(member)
    metadata = gang.metadata(name, {**common.labels, **gang.member_labels(member)}, gang.owner)
    annotations = {**network_annotations(gang, member), **common.annotations, **function_networks(gang, member)}
    annotations |= _annotations(member)
    spec = contract(gang).containers(gang, member, _spec(gang, index, common))
    if gang.sidecar_image:
        spec = with_sidecar(gang, index, common.trainer, spec)
        annotations |= {SETTINGS_ANNOTATION: settings_digest(spec, sizes(gang))}
        annotations |= {SIZE_ANNOTATION: size_told(gang)} if is_told_size(gang, member) else {}
        spec = with_replaced(gang, member, spec)
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def settings(gang: Gang, indexes: Sequence[int]) -> tuple[str, ...]:
    """The digests of the Pods of these members, of a gang that restarts in place, as they would be made now."""
    return tuple(each["metadata"]["annotations"][SETTINGS_ANNOTATION] for each in pods(gang, indexes))


def settings_digest(spec: Manifest, sizes: Collection[str] = ()) -> str:
    """A digest of what the containers of a Pod are told, and of whose network it has: where a Pod would be told
    something else today, no new one joins it. Resources, what follows from the namespace's policy, and the bandwidth
    that a preflight asks for are not among that; nor is the size of a gang that tells it itself, by these variables."""
    every = (*spec["initContainers"], *spec["containers"])
    told = [spec.get("hostNetwork"), *(_told(each, sizes) for each in every)]
    return sha256(msgspec.json.encode(told)).hexdigest()[:_DIGEST_LENGTH]


def _told(container: Manifest, sizes: Collection[str]) -> Manifest:
    env = [each for each in container.get("env") or () if each["name"] != FLOOR_VARIABLE and each["name"] not in sizes]
    if sizes:
        env = [{**each, "value": _unsized(each["value"])} if each["name"] == VARIABLE else each for each in env]
    return {**container, "env": env, "resources": None, "securityContext": None}


def _unsized(told: str) -> Manifest:
    return {**json.loads(told), "size": None}


def _annotations(member: Member) -> dict[str, str]:
    """Who reads it never takes an unknown GPU for a known one: all uuids or none."""
    return {GPUS_ANNOTATION: ",".join(member.uuids)} if member.uuids and all(member.uuids) else {}


def _spec(gang: Gang, index: int, common: _Common) -> Manifest:
    member = gang.members[index]
    containers = list(common.spec["containers"])
    ours = [{"name": variable.name, "value": variable.value} for variable in environment(gang, index).variables]
    containers[common.trainer] = {
        **common.container,
        # Ours first: Kubernetes expands $(NAME) from the variables before it, so the user's own may refer to them.
        "env": [*ours, *common.env],
        "resources": _resources(gang, member, common),
    }
    spec = {
        **common.spec,
        "hostname": gang.hostname(member),
        "affinity": _pinned(common.affinity, member.node),
        "containers": containers,
    }
    claims = []
    if member.is_claimed:
        claims.append({"name": _claim_name(member), "resourceClaimName": gang.name(member)})
    if member.uuids and gang.uses_imex_channels:
        claims.append({"name": IMEX_CLAIM, "resourceClaimTemplateName": template_name(gang)})
    if claims:
        spec["resourceClaims"] = [*(spec.get("resourceClaims") or []), *claims]
    return with_preflight(gang, member, containers[common.trainer], spec)


def _resources(gang: Gang, member: Member, common: _Common) -> Manifest:
    """The user's resources, the GPUs, and CPUs where they are left open; of what is added, requests equal limits."""
    resources = common.resources
    ours = {}
    if member.binding in {Binding.WHOLE_NODE, Binding.BEST_EFFORT}:
        ours[member.gpu_resource] = str(member.rank_count)
    if gang.uses_rdma and member.rdma_resource and not (common.asks_for_nics or gang.asks_for_functions(member)):
        for resource in member.nic_resources:
            ours[resource] = str(share(resource, len(member.nics)))
    if member.cpus is not None:
        ours["cpu"] = str(member.cpus)
    wanted = dict(resources)
    if ours:
        wanted |= {field: {**(resources.get(field) or {}), **ours} for field in ("limits", "requests")}
    claims = [_claim_name(member)] if member.is_claimed else []
    claims += [IMEX_CLAIM] if member.uuids and gang.uses_imex_channels else []
    if claims:
        wanted["claims"] = [*(resources.get("claims") or []), *({"name": name} for name in claims)]
    return wanted


def _claim_name(member: Member) -> str:
    return CLAIM if member.binding is Binding.DRA else NIC_CLAIM


def _pinned(affinity: Manifest, node: str) -> Manifest:
    """The affinity with a pin to one node, by name and not by the hostname label, which may differ.

    Terms are alternatives, so each gets the pin; an empty one matches nothing and stays as it is.
    """
    pin = {"key": "metadata.name", "operator": "In", "values": [node]}
    nodes = affinity.get("nodeAffinity") or {}
    required = nodes.get(REQUIRED) or {}
    terms = [
        {**term, "matchFields": [*(term.get("matchFields") or []), pin]}
        if term.get("matchExpressions") or term.get("matchFields")
        else term
        for term in required.get("nodeSelectorTerms") or []
    ]
    pinned = {**required, "nodeSelectorTerms": terms or [{"matchFields": [pin]}]}
    return {**affinity, "nodeAffinity": {**nodes, REQUIRED: pinned}}


def _mounts_shm(container: Manifest) -> bool:
    return any(mount["mountPath"].rstrip("/") == SHM_PATH for mount in container.get("volumeMounts") or [])


def _with_ipc_lock(security: Manifest) -> Manifest:
    """Verbs register memory by locking it, more of it than the runtime's default limit admits."""
    capabilities = security.get("capabilities") or {}
    add = capabilities.get("add") or []
    if "IPC_LOCK" in add or "ALL" in add:
        return security
    return {**security, "capabilities": {**capabilities, "add": [*add, "IPC_LOCK"]}}
