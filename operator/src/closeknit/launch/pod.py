"""One worker Pod: the user's template with what the placement adds."""

from collections.abc import Sequence
from typing import Any

from closeknit.api.names import GPU_RESOURCE, GPUS_ANNOTATION, PLACEMENT_GATE
from closeknit.api.trainingjob_status import Binding
from closeknit.launch.environment import environment
from closeknit.launch.gang import Gang, Manifest, RankNode
from closeknit.launch.template import CLAIM, SHM_PATH, SHM_VOLUME, trainer_index

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
# GPU nodes are commonly tainted so, to keep Pods away that need no GPU.
GPU_TOLERATION = {"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}


def pod(gang: Gang, index: int) -> Manifest:
    """The Pod of one node rank. check_template must have passed; nothing of the template is changed in place.

    It is pinned to its node from the start, and released later: by `release_patch` where a device plugin binds its
    GPUs, by the creation of its claim where DRA does.
    """
    node = gang.nodes[index]
    template = gang.job.spec.template
    name = gang.pod(index)
    metadata = gang.metadata(name, {**template.metadata.labels, **gang.worker_labels(index)}, gang.owner)
    annotations = {**template.metadata.annotations, **_annotations(node)}
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _spec(gang, node, template.spec)}


def release_patch(uid: str, gates: Sequence[str]) -> list[dict[str, Any]]:
    """The JSON patch that lets the scheduler have a Pod, of its uid and the names of its schedulingGates as last read.

    It tests both, so that it fails (422) on another Pod of that name, or when another owner has removed a gate
    meanwhile: then read again. Empty where our gate is gone already.
    """
    if PLACEMENT_GATE not in gates:
        return []
    path = f"/spec/schedulingGates/{list(gates).index(PLACEMENT_GATE)}"
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": f"{path}/name", "value": PLACEMENT_GATE},
        {"op": "remove", "path": path},
    ]


def _annotations(node: RankNode) -> dict[str, str]:
    """Who reads it never takes an unknown GPU for a known one: all uuids or none."""
    return {GPUS_ANNOTATION: ",".join(node.uuids)} if all(node.uuids) else {}


def _spec(gang: Gang, node: RankNode, template: Manifest) -> Manifest:
    trainer = trainer_index(template)
    containers = list(template["containers"])
    containers[trainer] = _trainer(gang, node, containers[trainer])
    spec = {
        **template,
        "hostname": gang.pod(node.index),
        "subdomain": gang.service,
        "restartPolicy": "Never",
        "affinity": _pinned(template.get("affinity") or {}, node.node),
        "containers": containers,
    }
    if gang.job.spec.priority_class_name:
        spec["priorityClassName"] = gang.job.spec.priority_class_name
    tolerations = template.get("tolerations") or []
    if GPU_TOLERATION not in tolerations:
        spec["tolerations"] = [*tolerations, GPU_TOLERATION]
    if not _mounts_shm(template["containers"][trainer]):
        # No sizeLimit: the kubelet sizes it to the Pod's memory limit, or to the node's memory without one. What is
        # written there counts as the container's memory, so that limit stays the one number that bounds both.
        shm = {"name": SHM_VOLUME, "emptyDir": {"medium": "Memory"}}
        spec["volumes"] = [*(template.get("volumes") or []), shm]
    if node.binding is Binding.DRA:
        claim = {"name": CLAIM, "resourceClaimName": gang.pod(node.index)}
        spec["resourceClaims"] = [*(template.get("resourceClaims") or []), claim]
    else:
        spec["schedulingGates"] = [*(template.get("schedulingGates") or []), {"name": PLACEMENT_GATE}]
    return spec


def _trainer(gang: Gang, node: RankNode, container: Manifest) -> Manifest:
    ours = [{"name": variable.name, "value": variable.value} for variable in environment(gang, node.index).variables]
    trainer = {
        **container,
        # Ours first: Kubernetes expands $(NAME) from the variables before it, so the user's own may refer to them.
        "env": [*ours, *(container.get("env") or [])],
        "resources": _resources(gang, node, container.get("resources") or {}),
    }
    if not _mounts_shm(container):
        # The runtime's own /dev/shm has 64 MiB, too little for NCCL and for data loaders.
        mount = {"name": SHM_VOLUME, "mountPath": SHM_PATH}
        trainer["volumeMounts"] = [*(container.get("volumeMounts") or []), mount]
    if gang.uses_rdma and gang.ipc_lock:
        trainer["securityContext"] = _with_ipc_lock(container.get("securityContext") or {})
    return trainer


def _resources(gang: Gang, node: RankNode, resources: Manifest) -> Manifest:
    """The user's resources and the GPUs; requests of an extended resource must equal its limits."""
    ours = {}
    if node.binding is not Binding.DRA:
        ours[GPU_RESOURCE] = str(node.rank_count)
    if gang.uses_rdma and node.rdma_resource and not _asks_for(resources, node.rdma_resource):
        ours[node.rdma_resource] = "1"  # one share exposes every NIC behind it
    wanted = dict(resources)
    if ours:
        wanted |= {field: {**(resources.get(field) or {}), **ours} for field in ("limits", "requests")}
    if node.binding is Binding.DRA:
        wanted["claims"] = [*(resources.get("claims") or []), {"name": CLAIM}]
    return wanted


def _asks_for(resources: Manifest, resource: str) -> bool:
    return any(resource in (resources.get(field) or {}) for field in ("limits", "requests"))


def _pinned(affinity: Manifest, node: str) -> Manifest:
    """The affinity with a pin to one node, by name and not by the hostname label, which may differ.

    Terms are alternatives, so each gets the pin; an empty one matches nothing and stays as it is.
    """
    pin = {"key": "metadata.name", "operator": "In", "values": [node]}
    nodes = affinity.get("nodeAffinity") or {}
    required = nodes.get(REQUIRED) or {}
    terms = [
        {**term, "matchFields": [*(term.get("matchFields") or []), pin]} if term else term
        for term in required.get("nodeSelectorTerms") or [{"matchFields": []}]
    ]
    return {**affinity, "nodeAffinity": {**nodes, REQUIRED: {**required, "nodeSelectorTerms": terms}}}


def _mounts_shm(container: Manifest) -> bool:
    return any(mount["mountPath"].rstrip("/") == SHM_PATH for mount in container.get("volumeMounts") or [])


def _with_ipc_lock(security: Manifest) -> Manifest:
    """Verbs register memory by locking it, more of it than the runtime's default limit admits."""
    capabilities = security.get("capabilities") or {}
    add = capabilities.get("add") or []
    if "IPC_LOCK" in add or "ALL" in add:
        return security
    return {**security, "capabilities": {**capabilities, "add": [*add, "IPC_LOCK"]}}
