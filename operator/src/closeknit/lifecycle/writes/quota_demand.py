"""What a whole gang takes of its namespace's quotas, under the quotas' names for it.

As Kubernetes' evaluators for Pods, Services and claims count it, as of 1.36. Amounts are whole numbers: of CPUs
thousandths of a core, of everything else units. What a LimitRange would add is not known here.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

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

    @property
    def is_best_effort(self) -> bool:
        """Whether its Pods ask for neither CPU nor memory."""
        return not any(self.pods.get(name) for name in ("cpu", "memory", "limits.cpu", "limits.memory"))


def quota_demand(manifests: Iterable[Manifest], *, may_be_counted: bool, gpus: int | None = None) -> QuotaDemand:
    """The demand of Pods that differ only in their devices, and of the other children. `gpus`: of a whole gang."""
    pods: Counter[str] = Counter()
    others: Counter[str] = Counter()
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
        dict(pods), dict(others), spec.get("priorityClassName") or "", deadline is not None, may_be_counted, gpus=gpus
    )


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
