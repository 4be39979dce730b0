"""The objects by which nodes are asked for: a ProvisioningRequest with its PodTemplate, or placeholder Pods."""

from hashlib import sha256
from typing import Any, NamedTuple

from closeknit.api.affinity import REQUIRED
from closeknit.api.names import (
    API_VERSION,
    GENERATION_LABEL,
    PLACEHOLDER_LABEL,
    PLACEHOLDER_PRIORITY_CLASS,
    TRAINING_JOB,
    JobKey,
)
from closeknit.api.objects import TrainingJob
from closeknit.api.toleration import GPU_TOLERATION
from closeknit.cluster.capacity.placeholder import PlaceholderName
from closeknit.cluster.capacity.provisioning import AUTOSCALING_GROUP, AUTOSCALING_VERSION, PROVISIONING_REQUEST
from closeknit.cluster.objects.pod_requests import CPU, needs
from closeknit.launch.gang import Manifest
from closeknit.lifecycle.capacity.gang_shape import GangShape

# It waits, and does nothing. Its grace period ends it: the first process of a container hears SIGTERM only if it says
# so.
_PAUSE = ("python", "-c", "import signal; signal.pause()")
# The least that leaves the Pod there until its kubelet has ended it. With 0 the scheduler takes its GPUs for free at
# once, while the kubelet still has them given out.
_GRACE_S = 1
_STAYS = {
    # Nodes that are there and not measured yet look unused; their autoscaler would take them away again.
    "karpenter.sh/do-not-disrupt": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}
_HOSTNAME = "kubernetes.io/hostname"


class CapacityAsk(NamedTuple):
    """A ProvisioningRequest, and the PodTemplate that it names."""

    job: JobKey
    job_uid: str
    generation: int
    request: Manifest
    template: Manifest
    """The job's own, as the request is: it is there before that."""


def provisioning_ask(job: TrainingJob, shape: GangShape, class_name: str) -> CapacityAsk:
    """The request for a gang's nodes."""
    name = f"{job.metadata.name}-capacity-{_digest(job, shape, class_name)}"
    namespace = job.key.namespace
    request = {
        "apiVersion": f"{AUTOSCALING_GROUP}/{AUTOSCALING_VERSION}",
        "kind": PROVISIONING_REQUEST,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {GENERATION_LABEL: str(job.metadata.generation)},
            "ownerReferences": [_owner(job)],
        },
        "spec": {
            "provisioningClassName": class_name,
            "podSets": [{"podTemplateRef": {"name": name}, "count": shape.pods}],
        },
    }
    metadata: Manifest = {}
    spec = _pod_spec(job, shape)
    if shape.may_share and shape.pods > 1:
        metadata, spec = {"labels": {PLACEHOLDER_LABEL: job.metadata.name}}, _apart(spec, job)
    template = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": [_owner(job)]},
        "template": {"metadata": metadata, "spec": spec},
    }
    return CapacityAsk(job.key, job.metadata.uid or "", job.metadata.generation, request, template)


def placeholder_names(job: TrainingJob, shape: GangShape, class_name: str) -> tuple[PlaceholderName, ...]:
    """The names of a gang's placeholder Pods: others for another generation of the job, and for another shape."""
    digest = _digest(job, shape, class_name)
    return tuple(PlaceholderName(job.metadata.name, digest, index, shape.pods) for index in range(shape.pods))


def placeholder(job: TrainingJob, shape: GangShape, name: PlaceholderName, image: str) -> Manifest:
    """A Pod that asks for one node of the gang. No two of them share a node, as no two Pods of the gang do."""
    template = job.spec.template.spec
    asked = _pod_spec(job, shape)
    affinity = template.get("affinity")
    of_nodes = affinity.get("nodeAffinity") if isinstance(affinity, dict) else None
    (container,) = asked["containers"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": str(name),
            "namespace": job.key.namespace,
            "labels": {PLACEHOLDER_LABEL: job.metadata.name},
            "annotations": dict(_STAYS),
            "ownerReferences": [_owner(job)],
        },
        "spec": {
            **asked,
            "containers": [
                {
                    "name": "pause",
                    "image": image,
                    "command": [*_PAUSE],
                    "resources": container["resources"],
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                        "readOnlyRootFilesystem": True,
                    },
                }
            ],
            "affinity": {
                **({"nodeAffinity": of_nodes} if of_nodes else {}),
                "podAntiAffinity": {REQUIRED: [_others_of(job)]},
            },
            "restartPolicy": "Always",
            "priorityClassName": PLACEHOLDER_PRIORITY_CLASS,
            "terminationGracePeriodSeconds": _GRACE_S,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        },
    }


def _owner(job: TrainingJob) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": TRAINING_JOB,
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
    }


def _others_of(job: TrainingJob) -> Manifest:
    """The term that keeps a Pod off nodes with another of the same gang that asks for a node."""
    return {"labelSelector": {"matchLabels": {PLACEHOLDER_LABEL: job.metadata.name}}, "topologyKey": _HOSTNAME}


def _apart(spec: Manifest, job: TrainingJob) -> Manifest:
    """A Pod's spec with that term beside its own affinity; as it is where the API server refuses that."""
    affinity = spec.get("affinity") or {}
    own = affinity.get("podAntiAffinity") or {}
    terms = (own.get(REQUIRED) or []) if isinstance(own, dict) else None
    if not isinstance(terms, list):
        return spec
    others = {**own, REQUIRED: [*terms, _others_of(job)]}
    return {**spec, "affinity": {**affinity, "podAntiAffinity": others}}


def _digest(job: TrainingJob, shape: GangShape, class_name: str) -> str:
    told = f"{job.metadata.uid}/{job.metadata.generation}/{shape.pods}x{shape.gpus_each}/{class_name}"
    return sha256(told.encode()).hexdigest()[:8]


def _pod_spec(job: TrainingJob, shape: GangShape) -> dict[str, Any]:
    """What an autoscaler's simulation of the scheduler reads of a Pod of the gang."""
    spec = job.spec.template.spec
    amounts = {key: f"{amount}m" if key == CPU else str(amount) for key, amount in needs(spec) if key != "pods"}
    gpus = {shape.resource: str(shape.gpus_each)}
    resources = {"requests": {**amounts, **gpus}, "limits": gpus}
    image = next((each.get("image") for each in spec.get("containers") or () if isinstance(each, dict)), None)
    tolerations = [each for each in spec.get("tolerations") or () if each != GPU_TOLERATION]
    chosen = {field: spec[field] for field in ("nodeSelector", "affinity", "runtimeClassName") if spec.get(field)}
    return {
        "restartPolicy": "Never",
        "containers": [{"name": "trainer", "image": image or "none", "resources": resources}],
        "tolerations": [*tolerations, GPU_TOLERATION],
        **chosen,
    }
