"""What cleans up behind others: the garbage collector, and the controller that takes claims back."""

import random
from math import inf
from typing import Any

from closeknit.controller.writes.resources import PODS, RESOURCE_CLAIMS
from closeknit.kube.api import Key, Resource
from lives.api_server import FINISHED, ApiServer
from lives.hand import Hand

LATEST_S = 30.0  # the garbage collector's own pace where it has much to do


class GarbageCollector(Hand):
    """Deletes what has lost its owners, sooner or later."""

    name = "garbage"

    def __init__(self, server: ApiServer, chance: random.Random) -> None:
        super().__init__(server, chance)
        self._due: dict[tuple[Resource, Key], float] = {}
        server.orphaned = self._note

    def step(self) -> None:
        """Collects what is due."""
        for (resource, key), moment in list(self._due.items()):
            if moment <= self.time:
                del self._due[resource, key]
                self.server.collect(resource, key)
        if (moment := min(self._due.values(), default=inf)) < inf:
            self.wake_at(moment)

    def _note(self, resource: Resource, key: Key) -> None:
        late_s = self.chance.choice([0.03, 0.03, 1.0, LATEST_S])
        self._due[resource, key] = moment = self.time + self.chance.uniform(0.01, late_s)
        self.wake_at(moment)


class ClaimController(Hand):
    """Takes devices back from Pods that are gone or over, and lets claims go that nobody uses."""

    name = "claims"
    pause_s = (0.01, 0.5)
    reads = (PODS, RESOURCE_CLAIMS)

    def step(self) -> None:
        """Looks at every claim that is reserved."""
        users = {
            pod["metadata"]["uid"] for pod in self.server.view(PODS).values() if pod["status"]["phase"] not in FINISHED
        }
        for key, claim in list(self.server.view(RESOURCE_CLAIMS).items()):
            reserved = claim.get("status", {}).get("reservedFor") or []
            kept = [each for each in reserved if each["uid"] in users]
            if kept != reserved:
                status = {**claim["status"], "reservedFor": kept} if kept else {}
                metadata: dict[str, Any] | None = None if kept else {"finalizers": []}
                self.server.amend(RESOURCE_CLAIMS, key, metadata=metadata, status=status)
