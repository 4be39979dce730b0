"""What a whole gang takes of its namespace's quotas, under the quotas' names for it.

As Kubernetes' evaluators for Pods, Services and claims count it, as of 1.36. Amounts are whole numbers: of CPUs
thousandths of a core, of everything else units. What admission adds to a Pod, for example a LimitRange's defaults, is
known once one was taken, or tried.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import msgspec

from closeknit.api.names import INDEX_LABEL, ROLE_LABEL
from closeknit.cluster.objects.pod_requests import PodResourceSpec, limits, requests
from closeknit.cluster.pods.pod import Pod
from closeknit.launch.gang import Manifest
from closeknit.lifecycle.status.pauses import lingers_from

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
    is_class_known: bool = False
    """Whether Pods that name none have none: admission may give them the default one."""
    has_deadline: bool = False
    """Whether its Pods have activeDeadlineSeconds."""
    may_be_counted: bool = False
    """Whether the used amount may include Pods that are being deleted: those of the job's last attempt."""
    given_back: "tuple[QuotaDemand, ...]" = ()
    """What Pods of the same namespace still use that make room for it: those that scopes count alike are one."""
    first: "tuple[QuotaDemand, ...]" = ()
    """What jobs of the same namespace are to have before it."""
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
                roles[manifest["metadata"]["labels"][ROLE_LABEL]] += 1
            case "Service":
                others.update({"services": 1, "count/services": 1})
            case "ConfigMap":
                others.update({"configmaps": 1, "count/configmaps": 1})
            case "Secret":
                others.update({"secrets": 1, "count/secrets": 1})
            case "ResourceClaim":
                others.update(_of_claim(manifest))
    return QuotaDemand(
        dict(pods),
        dict(others),
        spec.get("priorityClassName") or "",
        has_deadline=spec.get("activeDeadlineSeconds") is not None,
        may_be_counted=may_be_counted,
        gpus=gpus,
        roles=dict(roles),
    )


@dataclass(frozen=True, slots=True)
class AdmittedPod:
    """What the API server's admission makes of a Pod, as far as quotas count it: a LimitRange gives it requests, a
    RuntimeClass overhead, and the default PriorityClass a name."""

    role: str
    index: str
    """Within its role."""
    more: Mapping[str, int]
    """Than was sent, under the quotas' names; negative where it is less."""
    priority_class: str | None
    """None where that is not known."""
    has_deadline: bool


def admitted_pod(sent: Manifest, made: Mapping[str, Any]) -> AdmittedPod:
    """What it made of the Pod that was sent."""
    labels, spec = sent["metadata"]["labels"], made.get("spec") or {}
    more = _difference(_of_pod(sent["spec"]), _of_pod(spec))
    has_deadline = spec.get("activeDeadlineSeconds") is not None
    return AdmittedPod(labels[ROLE_LABEL], labels[INDEX_LABEL], more, spec.get("priorityClassName") or "", has_deadline)


def refused_pod(sent: Manifest, asked: Mapping[str, int], before: Iterable[AdmittedPod]) -> AdmittedPod:
    """The same of a Pod that a quota refuses: what that says was `asked` of it, and of all else what admission made of
    one of its role `before`."""
    labels, own = sent["metadata"]["labels"], _of_pod(sent["spec"])
    role, more = labels[ROLE_LABEL], _difference({name: own.get(name, 0) for name in asked}, asked)
    has_deadline = sent["spec"].get("activeDeadlineSeconds") is not None
    known = next((each for each in before if each.role == role), AdmittedPod(role, "", {}, None, has_deadline))
    return replace(known, index=labels[INDEX_LABEL], more={**known.more, **more})


def _difference(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    more = {name: after.get(name, 0) - before.get(name, 0) for name in sorted({*before, *after})}
    return {name: amount for name, amount in more.items() if amount}


def as_admitted(demand: QuotaDemand, admitted: Iterable[AdmittedPod]) -> QuotaDemand:
    """The demand with what admission makes of its Pods. Of a role's others it makes the same as of the last one of
    these: the first of a gang may get something of its own."""
    found: dict[str, list[AdmittedPod]] = {}
    for each in sorted(admitted, key=lambda each: (len(each.index), each.index)):
        if each.role in demand.roles:
            found.setdefault(each.role, []).append(each)
    if not found:
        return demand
    pods = Counter(demand.pods)
    for role, several in found.items():
        seen = several[-demand.roles[role] :]
        others = demand.roles[role] - len(seen)
        for each, number in zip(seen, [*[1] * (len(seen) - 1), 1 + others], strict=True):
            pods.update({name: amount * number for name, amount in each.more.items()})
    shown = found[max(found, key=demand.roles.__getitem__)][-1]
    return replace(
        demand,
        pods=dict(pods),
        priority_class=demand.priority_class if shown.priority_class is None else shown.priority_class,
        is_class_known=shown.priority_class is not None,
        has_deadline=shown.has_deadline,
    )


def given_back(pods: Iterable[Pod], now: datetime) -> tuple[QuotaDemand, ...]:
    """What quotas count less once those of these Pods are gone that hold something. One that has stayed too long after
    its deletion gives nothing back: its node may be dead, and nothing tells when it goes."""
    found: dict[tuple[str, bool, bool], Counter[str]] = {}
    for pod in pods:
        if not pod.is_live or (pod.deletion_timestamp is not None and now >= lingers_from(pod.deletion_timestamp, now)):
            continue
        asked = _named(pod.requests, pod.limits)
        is_best_effort = QuotaDemand(asked, {}).is_best_effort
        found.setdefault((pod.priority_class, pod.has_deadline, is_best_effort), Counter()).update(asked)
    return tuple(
        QuotaDemand(dict(total), {}, priority_class, is_class_known=True, has_deadline=has_deadline)
        for (priority_class, has_deadline, _), total in sorted(found.items())
    )


def _of_pod(spec: Mapping[str, Any]) -> dict[str, int]:
    try:
        asked = msgspec.convert(spec, PodResourceSpec)
    except msgspec.ValidationError:  # the API server will say what is wrong with it
        return _named({}, {})
    return _named(requests(asked), limits(asked))


def _named(requested: Mapping[str, int], most: Mapping[str, int]) -> dict[str, int]:
    """Those of one Pod under the quotas' names."""
    found = {"pods": 1, "count/pods": 1}
    for name, amount in requested.items():
        if name in _COMPUTE or name.startswith(HUGE_PAGES):
            found[name] = found[f"requests.{name}"] = amount
        elif "/" in name:
            found[f"requests.{name}"] = amount
    return found | {f"limits.{name}": amount for name, amount in most.items()}


def _of_claim(manifest: Manifest) -> dict[str, int]:
    found = Counter({_CLAIMS: 1})
    for request in manifest["spec"]["devices"]["requests"]:
        exactly = request["exactly"]
        found[f"{exactly['deviceClassName']}.deviceclass.resource.k8s.io/devices"] += exactly["count"]
    return dict(found)
