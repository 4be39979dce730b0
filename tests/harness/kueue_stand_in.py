"""A stand-in for Kueue's manager: it knows no quotas, and sets conditions of Workloads as it is told."""

from datetime import UTC, datetime
from typing import Any

from harness.local_cluster import LocalCluster

ADMITTED = (("QuotaReserved", "Quota reserved in ClusterQueue gpus"), ("Admitted", "The workload is admitted"))


class KueueStandIn:
    """Kueue's words about the Workloads of one namespace."""

    def __init__(self, cluster: LocalCluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace

    def workload(self) -> dict[str, Any]:
        """The only Workload there, once it is made."""
        return self._cluster.wait_for(self.found, "the Workload")

    def found(self) -> dict[str, Any] | None:
        """The only Workload there; None without one."""
        items: list[dict[str, Any]] = self._cluster.get("workloads", namespace=self._namespace)["items"]
        return items[0] if len(items) == 1 else None

    def admit(self, flavor: str) -> None:
        """Admits it with this flavour."""
        there = self.workload()
        assigned = [
            {"name": each["name"], "count": each["count"], "flavors": {"nvidia.com/gpu": flavor}}
            for each in there["spec"]["podSets"]
        ]
        off = {kind: ("False", "QuotaReserved", "") for kind in ("Evicted", "Preempted") if self.status(kind)}
        on = {kind: ("True", kind, words) for kind, words in ADMITTED}
        self._tell(there, {**off, **on}, admission={"clusterQueue": "gpus", "podSetAssignments": assigned})

    def say(self, kind: str, status: str, reason: str, message: str) -> None:
        """Sets one condition."""
        self._tell(self.workload(), {kind: (status, reason, message)})

    def status(self, kind: str) -> tuple[str, str] | None:
        """Status and reason of a condition; None without it."""
        conditions = (self.found() or {}).get("status", {}).get("conditions", [])
        return next(((each["status"], each["reason"]) for each in conditions if each["type"] == kind), None)

    def _tell(self, there: dict[str, Any], said: dict[str, tuple[str, str, str]], **status: Any) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        stored = there.get("status", {}).get("conditions", [])
        kept = [each for each in stored if each["type"] not in said]
        new = [
            {"type": kind, "status": told, "reason": reason, "message": message, "lastTransitionTime": now}
            for kind, (told, reason, message) in said.items()
        ]
        body = {"status": {**status, "conditions": [*kept, *new]}}
        self._cluster.patch("workload", there["metadata"]["name"], body, self._namespace, subresource="status")
