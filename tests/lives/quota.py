"""ResourceQuotas: admission counts what is asked, and a controller finds out later what has come free. A LimitRange."""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from closeknit.api.text.quantity import quantity
from closeknit.controller.writes.resources import PODS
from closeknit.kube.api import JsonObject, Resource
from closeknit.kube.errors import Forbidden
from lives.api_server import RESOURCE_QUOTAS, ApiServer, key_of
from lives.hand import Hand
from lives.scheduler import is_live, requests

NAMESPACE = "team-b"
"""Where there may be a quota and a LimitRange."""
CPUS = frozenset({"requests.cpu", "limits.cpu"})


@dataclass(frozen=True)
class LimitRange:
    """What admission gives to each container of a namespace that does not say how many CPUs it asks for."""

    request: str
    limit: str | None  # where it gives none, containers keep what they say
    share: int
    """So many CPUs of a quota come with each Pod that it takes."""

    def apply(self, body: JsonObject) -> JsonObject:
        """A Pod as admission makes it."""
        spec = dict(body["spec"])
        for group in ("containers", "initContainers"):
            if group in spec:
                spec[group] = [{**each, "resources": self._resources(each)} for each in spec[group]]
        return {**body, "spec": spec}

    def _resources(self, container: JsonObject) -> JsonObject:
        resources = container.get("resources") or {}
        limits, asked = dict(resources.get("limits") or {}), dict(resources.get("requests") or {})
        asked.setdefault("cpu", limits.get("cpu", self.request))
        if self.limit is not None:
            limits.setdefault("cpu", self.limit)
        return {**resources, "requests": asked, "limits": limits}

    def hard(self, pods: int) -> dict[str, str]:
        """The CPUs of a quota that takes so many Pods."""
        hard = {"requests.cpu": str(self.share * pods)}
        return hard if self.limit is None else {**hard, "limits.cpu": str(int(self.limit) * pods)}


def limit_range(seed: int) -> LimitRange | None:
    """That of one life in four. It follows from the seed alone, so that it moves no chance of anybody."""
    chance = random.Random(f"limits {seed}")  # noqa: S311 - to be repeated
    if chance.random() >= 0.25:
        return None
    return LimitRange(chance.choice(["2", "16", "60"]), chance.choice([None, "120"]), chance.choice([10, 20, 60]))


def amounts(quota: Mapping[str, Any]) -> Counter[str]:
    """The numbers of a quota; CPUs in thousandths."""
    return Counter({name: _number(name, str(amount)) for name, amount in quota.items()})


def _number(name: str, amount: str) -> int:
    return int(quantity(amount) * (1000 if name in CPUS else 1))


def _text(name: str, number: int) -> str:
    return f"{number}m" if name in CPUS else str(number)


def counted(pod: JsonObject) -> Counter[str]:
    """What a Pod takes of a quota; CPUs in thousandths, with those of sidecars."""
    spec = pod["spec"]
    found = {name if name == "pods" else f"requests.{name}": amount for name, amount in requests(pod).items()}
    sidecars = [each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
    for name in CPUS:
        part, resource = name.split(".")
        resources = [each.get("resources") or {} for each in (*spec["containers"], *sidecars)]
        found[name] = sum(_number(name, str((each.get(part) or {}).get(resource, 0))) for each in resources)
    return Counter(found)


class QuotaController(Hand):
    """Keeps `status.used`; what admission adds is there at once, what goes is seen some time later."""

    name = "quota"
    pause_s = (0.2, 5.0)
    reads = (PODS, RESOURCE_QUOTAS)

    def step(self) -> None:
        """Counts again."""
        for key, quota in list(self.server.view(RESOURCE_QUOTAS).items()):
            used: Counter[str] = Counter()
            for pod in self.server.view(PODS).values():
                if pod["metadata"]["namespace"] == key.namespace and is_live(pod):
                    used += counted(pod)
            hard = quota["spec"]["hard"]
            status = {"hard": hard, "used": {name: _text(name, used[name]) for name in hard}}
            self.server.amend(RESOURCE_QUOTAS, key, status=status)


class QuotaAdmission:
    """Refuses a Pod that a quota of its namespace has no room for."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    def __call__(self, resource: Resource, body: JsonObject, is_dry_run: bool) -> None:
        """See `api_server.Admission`."""
        if resource != PODS:
            return
        asked = counted(body)
        grown: list[tuple[JsonObject, dict[str, str]]] = []
        for key, quota in sorted(self._server.view(RESOURCE_QUOTAS).items()):
            if key.namespace != body["metadata"]["namespace"]:
                continue
            hard, used = amounts(quota["spec"]["hard"]), amounts(quota.get("status", {}).get("used") or {})
            names = sorted(name for name in hard if asked[name])
            over = [name for name in names if used[name] + asked[name] > hard[name]]
            if over:
                words = ", ".join(
                    f"{title}: {','.join(f'{name}={_text(name, amount[name])}' for name in over)}"
                    for title, amount in (("requested", asked), ("used", used), ("limited", hard))
                )
                message = f'pods "{body["metadata"]["name"]}" is forbidden: exceeded quota: {key.name}, {words}'
                raise Forbidden(message, code=403, reason="Forbidden")
            used += Counter({name: asked[name] for name in names})
            grown.append((quota, {name: _text(name, used[name]) for name in hard}))
        for quota, told in grown if not is_dry_run else ():
            self._server.amend(RESOURCE_QUOTAS, key_of(quota), status={"hard": quota["spec"]["hard"], "used": told})
