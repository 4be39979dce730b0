"""ResourceQuotas: admission counts what is asked, and a controller finds out later what has come free."""

from collections import Counter

from closeknit.controller.writes.resources import PODS
from closeknit.kube.api import JsonObject, Resource
from closeknit.kube.errors import Forbidden
from lives.api_server import RESOURCE_QUOTAS, ApiServer, key_of
from lives.hand import Hand
from lives.scheduler import is_live, requests


def counted(pod: JsonObject) -> Counter[str]:
    """What a Pod takes of a quota."""
    return Counter({name if name == "pods" else f"requests.{name}": amount for name, amount in requests(pod).items()})


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
            status = {"hard": hard, "used": {name: str(used[name]) for name in hard}}
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
            hard, used = quota["spec"]["hard"], quota.get("status", {}).get("used") or {}
            names = sorted(name for name in hard if asked[name])
            over = [name for name in names if int(used.get(name, "0")) + asked[name] > int(hard[name])]
            if over:
                words = ", ".join(
                    f"{title}: {','.join(f'{name}={amount[name]}' for name in over)}"
                    for title, amount in (("requested", asked), ("used", Counter(used)), ("limited", hard))
                )
                message = f'pods "{body["metadata"]["name"]}" is forbidden: exceeded quota: {key.name}, {words}'
                raise Forbidden(message, code=403, reason="Forbidden")
            grown.append((quota, {**used, **{name: str(int(used.get(name, "0")) + asked[name]) for name in names}}))
        for quota, used in grown if not is_dry_run else ():
            self._server.amend(RESOURCE_QUOTAS, key_of(quota), status={"hard": quota["spec"]["hard"], "used": used})
