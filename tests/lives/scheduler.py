"""kube-scheduler, as far as a gang meets it: nodes, taints, countable resources, devices that a claim gets alone."""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from closeknit.api.names import GPU_DRA_DRIVER
from closeknit.api.text.quantity import quantity
from closeknit.controller.writes.resources import PODS, RESOURCE_CLAIMS
from closeknit.kube.api import JsonObject, Key, Resource
from faults.kinds import NODES
from lives.api_server import FINISHED, key_of
from lives.hand import Hand

SLICES = Resource("resource.k8s.io", "v1", "resourceslices", namespaced=False)
PROTECTION = "resource.kubernetes.io/delete-protection"
Device = tuple[str, str]
"""Pool and name."""


def requests(pod: JsonObject) -> Counter[str]:
    """What a Pod asks of its node, in whole units; itself counts as one of `pods`."""
    found = Counter({"pods": 1})
    for container in pod["spec"]["containers"]:
        resources = container.get("resources") or {}
        for name, amount in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
            found[name] += int(quantity(str(amount)))
    return found


def allocatable(node: JsonObject) -> Counter[str]:
    """What a node has."""
    return Counter({"pods": 110} | {name: int(quantity(str(n))) for name, n in node["status"]["allocatable"].items()})


def allocated(claim: JsonObject) -> list[Device]:
    """Devices that a claim has."""
    results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    return [(result["pool"], result["device"]) for result in results]


def is_live(pod: JsonObject) -> bool:
    """Whether it holds what it was given."""
    return pod.get("status", {}).get("phase") not in FINISHED


def pin(pod: JsonObject) -> str | None:
    """The one node that a Pod is for."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    for term in (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms", ()):
        for wanted in term.get("matchFields", ()):
            return str(wanted["values"][0])
    return None


def tolerates(pod: JsonObject, taint: JsonObject) -> bool:
    """Whether the Pod does not mind a taint."""
    return any(
        (not each.get("key") or each["key"] == taint["key"])
        and (not each.get("effect") or each["effect"] == taint["effect"])
        and (each.get("operator") == "Exists" or each.get("value", "") == taint.get("value", ""))
        for each in pod["spec"].get("tolerations") or ()
    )


@dataclass
class _Round:
    """What is taken at the moment, as one walk over the Pods sees it."""

    used: dict[str, Counter[str]]
    devices: dict[Device, Key]
    """Who has them: keys of claims."""
    by_node: dict[str, dict[str, str]] = field(default_factory=dict)
    """uuid -> name of the devices of each node."""


class Scheduler(Hand):
    """Binds what can be bound, and says of the rest why it cannot."""

    name = "scheduler"
    pause_s = (0.01, 0.1)
    reads = (PODS, NODES, RESOURCE_CLAIMS, SLICES)

    def step(self) -> None:
        """One walk over all Pods that wait, the most important first."""
        pods = self.server.view(PODS)
        waiting = [
            pod
            for pod in pods.values()
            if not pod["spec"].get("nodeName")
            and is_live(pod)
            and "deletionTimestamp" not in pod["metadata"]
            and not pod["spec"].get("schedulingGates")
        ]
        if not waiting:
            return
        used: dict[str, Counter[str]] = {}
        for pod in pods.values():
            if (node := pod["spec"].get("nodeName")) and is_live(pod):
                used.setdefault(node, Counter()).update(requests(pod))
        claims = self.server.view(RESOURCE_CLAIMS)
        taken = _Round(used, {device: key for key, claim in claims.items() for device in allocated(claim)})
        for part in self.server.view(SLICES).values():
            names = taken.by_node.setdefault(part["spec"]["nodeName"], {})
            names |= {each["attributes"]["uuid"]["string"]: each["name"] for each in part["spec"]["devices"]}
        for pod in sorted(waiting, key=lambda pod: -pod["spec"].get("priority", 0)):
            self._try(pod, taken)

    def _try(self, pod: JsonObject, taken: _Round) -> None:
        names = [each["resourceClaimName"] for each in pod["spec"].get("resourceClaims") or ()]
        keys = [Key(pod["metadata"]["namespace"], name) for name in names]
        claims = [self.server.view(RESOURCE_CLAIMS).get(key) for key in keys]
        there = [claim for claim in claims if claim is not None]
        if len(there) < len(claims):
            return  # held back without a word
        if any("deletionTimestamp" in claim["metadata"] for claim in there):
            self._refuse(pod, f'resourceclaim "{names[0]}" is being deleted')
            return
        nodes = self.server.view(NODES)
        pinned = pin(pod)
        reasons: Counter[str] = Counter()
        for key, node in nodes.items():
            if pinned is not None and key.name != pinned:
                reasons["node(s) didn't satisfy plugin(s) [NodeAffinity]"] += 1
                continue
            why = self._why_not(pod, node, taken)
            chosen = None if why else self._devices(there, key.name, taken)
            if not why and chosen is None:
                why = "cannot allocate all claims"
            if why:
                reasons[why] += 1
                continue
            if chosen:  # bound in the next step, once the allocation is stored
                for claim, devices in chosen:
                    self._allocate(claim, key.name, devices, pod)
                    taken.devices |= dict.fromkeys(devices, key_of(claim))
                self.wake()
                return
            self._bind(pod, key.name)
            taken.used.setdefault(key.name, Counter()).update(requests(pod))
            return
        told = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
        self._refuse(pod, f"0/{len(nodes)} nodes are available: {told}. preemption: not helpful for scheduling.")

    def _why_not(self, pod: JsonObject, node: JsonObject, taken: _Round) -> str | None:
        if node["spec"].get("unschedulable"):
            return "node(s) were unschedulable"
        for taint in node["spec"].get("taints") or ():
            if taint["effect"] != "PreferNoSchedule" and not tolerates(pod, taint):
                return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
        there = allocatable(node)
        used = taken.used.get(node["metadata"]["name"], Counter())
        for name, amount in sorted(requests(pod).items()):
            if used[name] + amount > there[name]:
                return "Too many pods" if name == "pods" else f"Insufficient {name}"
        return None

    def _devices(
        self, claims: list[JsonObject], node: str, taken: _Round
    ) -> list[tuple[JsonObject, list[Device]]] | None:
        """What is to be allocated here to each claim that has nothing yet; None where that cannot be."""
        found: list[tuple[JsonObject, list[Device]]] = []
        gone = set(taken.devices)
        for claim in claims:
            if devices := allocated(claim):
                if any(pool != node for pool, _ in devices):
                    return None
                continue
            exactly = claim["spec"]["devices"]["requests"][0]["exactly"]
            wanted = set(re.findall(r"'(GPU-[^']+)'", str(exactly.get("selectors", ""))))
            free = [
                (node, name)
                for uuid, name in taken.by_node.get(node, {}).items()
                if (node, name) not in gone and (not wanted or uuid in wanted)
            ]
            if len(free) < exactly["count"]:
                return None
            found.append((claim, free[: exactly["count"]]))
            gone |= set(free[: exactly["count"]])
        return found

    def _allocate(self, claim: JsonObject, node: str, devices: list[Device], pod: JsonObject) -> None:
        results = [
            {"request": "gpus", "driver": GPU_DRA_DRIVER, "pool": node, "device": name, "adminAccess": None}
            for _, name in devices
        ]
        status = {"allocation": {"devices": {"results": results}}, "reservedFor": [_consumer(pod)]}
        self.server.amend(RESOURCE_CLAIMS, key_of(claim), metadata={"finalizers": [PROTECTION]}, status=status)

    def _bind(self, pod: JsonObject, node: str) -> None:
        key = key_of(pod)
        for name in [each["resourceClaimName"] for each in pod["spec"].get("resourceClaims") or ()]:
            claim = self.server.view(RESOURCE_CLAIMS)[Key(key.namespace, name)]
            reserved = claim["status"].get("reservedFor", [])
            if _consumer(pod) not in reserved:  # it was another Pod's of this name, which is gone
                status = {**claim["status"], "reservedFor": [*reserved, _consumer(pod)]}
                self.server.amend(RESOURCE_CLAIMS, key_of(claim), status=status)
        bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self.server.stamp()}
        status = with_condition(pod["status"], bound)
        self.server.amend(PODS, key, spec={**pod["spec"], "nodeName": node}, status=status)

    def _refuse(self, pod: JsonObject, words: str) -> None:
        before = next((each for each in pod["status"].get("conditions", ()) if each["type"] == "PodScheduled"), None)
        since = before["lastTransitionTime"] if before else self.server.stamp()
        refused = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": words,
            "lastTransitionTime": since,
        }
        self.server.amend(PODS, key_of(pod), status=with_condition(pod["status"], refused))


def with_condition(status: JsonObject, condition: JsonObject) -> dict[str, Any]:
    """The status of a Pod that says this, too."""
    others = [each for each in status.get("conditions", ()) if each["type"] != condition["type"]]
    return {**status, "conditions": [*others, condition]}


def _consumer(pod: JsonObject) -> JsonObject:
    return {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
