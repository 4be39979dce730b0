"""What a whole gang takes of its namespace's quotas, under the quotas' names for it.

As Kubernetes' evaluators for Pods, Services and claims count it, as of 1.36. Amounts are whole numbers: of CPUs
thousandths of a core, of everything else units. What admission adds to a Pod, for example a LimitRange's defaults, is
known once one was taken, or tried.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from closeknit.api.names import ROLE_LABEL
from closeknit.cluster.objects.pod_requests import Container, PodResourceSpec, Resources, requests
from closeknit.cluster.pods.pod import Pod
from closeknit.launch.gang import Manifest

_COMPUTE = frozenset({"cpu", "memory", "ephemeral-storage"})
HUGE_PAGES = "hugepages-"
_CLAIMS = "count/resourceclaims.resource.k8s.io"


@dataclass(frozen=True, slots=True)
class QuotaDemand:
    """The sum over a gang."""

    pods: Mapping[str, int]
    """Requests of its Pods, for example {"pods": 2, "requests.nvidia.com/gpu": 16}."""
    others: Mapping[str, int]
    """Counts of Services, claims, ConfigMaps and Secrets; quotas with a scope do not count them."""
    priority_class: str = ""
    """Of its Pods; empty where they name none."""
    has_deadline: bool = False
    """Whether its Pods have activeDeadlineSeconds."""
    may_be_counted: bool = False
    """Whether the used amount may include Pods that are being deleted: those of the job's last attempt."""
    given_back: Mapping[str, int] = field(default_factory=dict)
    """What Pods of the same namespace still use that make room for it; quotas with a scope are not sure to count it."""
    gpus: int | None = None
    """Of the whole gang; None where this is the demand of some of its Pods."""
    roles: Mapping[str, int] = field(default_factory=dict)
    """Its Pods of each role."""

    @property
    def is_best_effort(self) -> bool:
        """Whether its Pods ask for neither CPU nor memory."""
        return not any(self.pods.get(name) for name in ("cpu", "memory", "limits.cpu", "limits.memory"))


def quota_demand(manifests: Iterable[Manifest], *, may_be_counted: bool, gpus: int | None = None) -> QuotaDemand:
    """The demand of Pods that differ only in their devices, and of the other children. `gpus`: of a whole gang."""
    pods: Counter[str] = Counter()
    others: Counter[str] = Counter()
    roles: Counter[str] = Counter()
    known: dict[str, dict[str, int]] = {}
    spec: Manifest = {}
    for manifest in manifests:
        match manifest["kind"]:
            case "Pod":
                spec = manifest["spec"]
                key = repr([container.get("resources") for container in spec["containers"]])
                if key not in known:
                    known[key] = _of_pod(spec)
                pods.update(known[key])
                roles[role_of(manifest)] += 1
            case "Service":
                others.update({"services": 1, "count/services": 1})
            case "ConfigMap":
                others.update({"configmaps": 1, "count/configmaps": 1})
            case "Secret":
                others.update({"secrets": 1, "count/secrets": 1})
            case "ResourceClaim":
                others.update(_of_claim(manifest))
    deadline = spec.get("activeDeadlineSeconds")
    return QuotaDemand(
        dict(pods),
        dict(others),
        spec.get("priorityClassName") or "",
        deadline is not None,
        may_be_counted,
        gpus=gpus,
        roles=dict(roles),
    )


@dataclass(frozen=True, slots=True)
class AdmittedPod:
    """What the API server's admission makes of a Pod, as far as quotas count it: a LimitRange gives it requests, a
    RuntimeClass overhead, and the default PriorityClass a name."""

    more: Mapping[str, int]
    """Than was sent, under the quotas' names; negative where it is less."""
    priority_class: str
    has_deadline: bool


def admitted_pod(sent: Manifest, made: Mapping[str, Any]) -> AdmittedPod:
    """What it made of the Pod that was sent."""
    spec = made.get("spec") or {}
    before, after = _of_pod(sent["spec"]), _of_pod(spec)
    more = {name: after.get(name, 0) - before.get(name, 0) for name in sorted({*before, *after})}
    return AdmittedPod(
        {name: amount for name, amount in more.items() if amount},
        spec.get("priorityClassName") or "",
        spec.get("activeDeadlineSeconds") is not None,
    )


def as_admitted(demand: QuotaDemand, admitted: Mapping[str, AdmittedPod]) -> QuotaDemand:
    """The demand with what admission made of one Pod of each of these roles: it makes the same of the others."""
    pods = Counter(demand.pods)
    for role, each in admitted.items():
        pods.update({name: amount * demand.roles.get(role, 0) for name, amount in each.more.items()})
        demand = replace(demand, priority_class=each.priority_class, has_deadline=each.has_deadline)
    return replace(demand, pods=dict(pods))


def role_of(pod: Manifest) -> str:
    """Of a Pod of ours."""
    return str(pod["metadata"]["labels"][ROLE_LABEL])


def given_back(pods: Iterable[Pod]) -> dict[str, int]:
    """What quotas count less once these Pods are gone: their requests, and not their limits, which are not kept."""
    found: Counter[str] = Counter()
    for pod in pods:
        found.update({"pods": 1, "count/pods": 1})
        for name, amount in pod.requests.items():
            if name in _COMPUTE or name.startswith(HUGE_PAGES):
                found.update({name: amount, f"requests.{name}": amount})
            elif "/" in name:
                found[f"requests.{name}"] += amount
    return dict(found)


def _of_pod(spec: Manifest) -> dict[str, int]:
    found = {"pods": 1, "count/pods": 1}
    try:
        asked = msgspec.convert(spec, PodResourceSpec)
    except msgspec.ValidationError:  # the API server will say what is wrong with it
        return found
    for name, amount in requests(asked).items():
        if name in _COMPUTE or name.startswith(HUGE_PAGES):
            found[name] = found[f"requests.{name}"] = amount
        elif "/" in name:
            found[f"requests.{name}"] = amount
    limits = requests(_limits(asked))
    overhead = requests(PodResourceSpec(overhead=asked.overhead))
    for name in _COMPUTE & limits.keys():
        found[f"limits.{name}"] = limits[name] + overhead.get(name, 0)
    return found


def _limits(asked: PodResourceSpec) -> PodResourceSpec:
    """Limits, as if only these were requested. A container without one, and its overhead, does not count."""
    return PodResourceSpec(
        containers=[_limited(container) for container in asked.containers or ()],
        init_containers=[_limited(container) for container in asked.init_containers or ()],
        resources=Resources(requests=asked.resources.limits) if asked.resources else None,
    )


def _limited(container: Container) -> Container:
    limits = container.resources.limits if container.resources else None
    return Container(container.name, Resources(requests=limits), container.restart_policy)


def _of_claim(manifest: Manifest) -> dict[str, int]:
    found = Counter({_CLAIMS: 1})
    for request in manifest["spec"]["devices"]["requests"]:
        exactly = request["exactly"]
        found[f"{exactly['deviceClassName']}.deviceclass.resource.k8s.io/devices"] += exactly["count"]
    return dict(found)
