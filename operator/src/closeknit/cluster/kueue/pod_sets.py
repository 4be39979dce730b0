"""What a job asks Kueue's quota for: the pod sets of its Workload, and what tells two demands apart."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from closeknit.api.names import GPU_RESOURCE, MIG_RESOURCE_PREFIX, POD_COUNT
from closeknit.api.toleration import GPU_TOLERATION
from closeknit.api.trainingjob import TrainingJobSpec
from closeknit.cluster.objects.pod_requests import CPU, Needs, needs

WORKERS, SERVERS = "workers", "ps"
# What of a pod set's template Kueue counts, or chooses a flavour by.
_COUNTED = ("containers", "initContainers", "nodeSelector", "tolerations", "affinity", "overhead", "runtimeClassName")


def pod_counts(spec: TrainingJobSpec) -> dict[str, int]:
    """Pods of each pod set, by its name."""
    counts = {WORKERS: spec.gpus // (spec.topology.gpus_per_node or 1)}
    if spec.parameter_servers is not None:
        counts[SERVERS] = spec.parameter_servers.replicas
    return counts


def pod_sets(spec: TrainingJobSpec) -> list[dict[str, Any]]:
    """The pod sets of a job: its workers, and its parameter servers if it has any.

    How many Pods the workers will be is known where the job says `gpusPerNode`, or has one GPU: then each Pod counts
    with all that its template requests. Else each GPU counts as a Pod of its own, and CPUs and memory do not.
    """
    template, each = spec.template.spec, spec.topology.gpus_per_node
    asked = needs(template) if each is not None or spec.gpus == 1 else ()
    resource = GPU_RESOURCE if spec.gpu.mig is None else f"{MIG_RESOURCE_PREFIX}{spec.gpu.mig}"
    counts = pod_counts(spec)
    found = [_pod_set(WORKERS, counts[WORKERS], template, asked, {resource: str(each or 1)})]
    if (servers := spec.parameter_servers) is not None:
        found.append(_pod_set(SERVERS, counts[SERVERS], servers.template.spec, needs(servers.template.spec), {}))
    return found


def _pod_set(
    name: str, count: int, template: Mapping[str, Any], asked: Needs, gpus: Mapping[str, str]
) -> dict[str, Any]:
    amounts = {key: f"{amount}m" if key == CPU else str(amount) for key, amount in asked if key != POD_COUNT}
    chosen = {field: template[field] for field in ("nodeSelector", "runtimeClassName") if template.get(field)}
    own = template.get("tolerations")
    tolerations = [each for each in (own if isinstance(own, list) else ()) if each != GPU_TOLERATION]
    chosen["tolerations"] = [*tolerations, GPU_TOLERATION]
    affinity = template.get("affinity")
    if isinstance(affinity, dict) and affinity.get("nodeAffinity"):
        chosen["affinity"] = {"nodeAffinity": affinity["nodeAffinity"]}
    limits = {"limits": dict(gpus)} if gpus else {}
    container = {"name": "trainer", "resources": {"requests": {**amounts, **gpus}, **limits}}
    return {
        "name": name,
        "count": count,
        "template": {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [container], **chosen}},
    }


def digest(found: Sequence[Any]) -> str:
    """What tells whether two lists of pod sets ask for the same, whatever an API server has added to one of them."""
    try:
        told = msgspec.json.encode([_counted(each) for each in found], order="deterministic")
    except (ValueError, OverflowError, RecursionError):  # what nobody can write can be no demand of ours
        return ""
    return sha256(told).hexdigest()[:16]


def _counted(pod_set: Any) -> Any:
    if not isinstance(pod_set, dict):
        return None
    template = pod_set.get("template")
    spec = template.get("spec") if isinstance(template, dict) else None
    kept = {field: spec[field] for field in _COUNTED if spec.get(field)} if isinstance(spec, dict) else {}
    for field in ("containers", "initContainers"):
        if isinstance(kept.get(field), list):
            kept[field] = [
                {"name": each.get("name"), "resources": each.get("resources")} if isinstance(each, dict) else None
                for each in kept[field]
            ]
    return [pod_set.get("name"), pod_set.get("count"), pod_set.get("minCount"), kept]
