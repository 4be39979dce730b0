"""An API server as a cluster has it: Pods go in their own time, admission has a say, and garbage is collected later."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from closeknit.controller.writes.resources import PODS
from closeknit.kube.api import JsonObject, Key, Resource
from closeknit.kube.errors import Forbidden
from faults.kinds import STOCK_KINDS, Kind
from faults.store import Change, Store

RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False)
GRACE_S = 30  # terminationGracePeriodSeconds where a Pod does not say
# What the admission plugin DefaultTolerationSeconds gives to every Pod.
PATIENCE_S = 300
PATIENCE = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": PATIENCE_S}
    for key in ("not-ready", "unreachable")
]
FINISHED = ("Succeeded", "Failed")

Admission = Callable[[Resource, JsonObject, bool], None]
"""Raises for a body that is not to be made; the last argument: it is a dry run."""


def key_of(body: JsonObject) -> Key:
    """Namespace and name."""
    return Key(body["metadata"].get("namespace", ""), body["metadata"]["name"])


class ApiServer(Store):
    """A store with the lifetimes of a real server. `now` is the moment on the clock of the whole world."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._moment = now
        super().__init__(
            (*STOCK_KINDS, Kind(RESOURCE_QUOTAS, "ResourceQuota", has_status=True)), history=5000, now=self.stamp
        )
        self.actor = ""
        """Whose call is being carried out."""
        self.observers: list[Callable[[Resource, Change], None]] = []
        self.admission: list[Admission] = []
        self.defaults: dict[str, Callable[[JsonObject], JsonObject]] = {}
        """What admission makes of a Pod of a namespace, where it makes more of it than of every Pod."""
        self.mistakes: list[Exception] = []
        """Of the world itself: what it did wrong, the operator is not to blame for."""
        self.orphaned: Callable[[Resource, Key], None] = lambda _resource, _key: None
        """Called with what has lost its last owner."""

    def stamp(self, after_s: float = 0) -> str:
        """The moment so much later, as Kubernetes writes it."""
        return (self._moment() + timedelta(seconds=after_s)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def view(self, resource: Resource) -> Mapping[Key, JsonObject]:
        """What is stored, in the order of creation, to be read and never changed."""
        return self._objects[resource]

    def create(self, resource: Resource, body: JsonObject, *, namespace: str = "", dry_run: bool = False) -> JsonObject:
        """See `Store.create`; a Pod gets what admission adds to it. Reviews have no name, and are answered at once."""
        if "name" not in body["metadata"]:
            return super().create(resource, body, namespace=namespace, dry_run=dry_run)
        if resource == PODS:
            spec = body["spec"]
            priority = self._priority(body["metadata"]["name"], spec.get("priorityClassName"))
            spec = {**spec, "priority": priority, "tolerations": [*(spec.get("tolerations") or ()), *PATIENCE]}
            body = self.defaults.get(namespace, dict)({**body, "spec": spec})
        for admit in self.admission if Key(namespace, body["metadata"]["name"]) not in self.view(resource) else ():
            admit(resource, {**body, "metadata": {**body["metadata"], "namespace": namespace}}, dry_run)
        return super().create(resource, body, namespace=namespace, dry_run=dry_run)

    def amend(self, resource: Resource, key: Key, *, metadata: Mapping[str, Any] | None = None, **parts: Any) -> None:
        """What a part of Kubernetes writes: these fields as given. What it writes of nothing is nothing."""
        live = self._objects[resource].get(key)
        if live is None:
            return
        new = {**live, **parts, "metadata": {**live["metadata"], **(metadata or {})}}
        if new == live:
            return
        if new["metadata"].get("deletionTimestamp") and new["metadata"].get("finalizers") == []:
            self._remove(resource, key)
            return
        self._commit(resource, key, live, new)

    def remove(self, resource: Resource, key: Key) -> None:
        """The object is gone at once, as after a deletion without grace."""
        if key in self._objects[resource]:
            self._remove(resource, key)

    def collect(self, resource: Resource, key: Key) -> None:
        """Deletes what has no owner any more."""
        body = self._objects[resource].get(key)
        if body is not None and self.is_orphan(body):
            self._delete(resource, key)

    def is_orphan(self, body: JsonObject) -> bool:
        """Whether an object had owners and has none."""
        owners = [reference["uid"] for reference in body["metadata"].get("ownerReferences") or ()]
        namespaces = ("", body["metadata"].get("namespace", ""))
        return bool(owners) and not any(self._uids.get(uid) in namespaces for uid in owners)

    def _delete(self, resource: Resource, key: Key, uid: str | None = None) -> None:
        body = self._objects[resource].get(key)
        is_other = body is None or uid not in (None, body["metadata"]["uid"])
        if resource != PODS or body is None or is_other:
            super()._delete(resource, key, uid)
        elif not body["spec"].get("nodeName") or body["status"]["phase"] in FINISHED:
            self._remove(resource, key)
        elif "deletionTimestamp" not in body["metadata"]:
            grace_s = body["spec"].get("terminationGracePeriodSeconds", GRACE_S)
            going = {"deletionTimestamp": self.stamp(grace_s), "deletionGracePeriodSeconds": grace_s}
            self.amend(PODS, key, metadata=going)

    def _collect_if_orphaned(self, resource: Resource, key: Key) -> None:
        body = self._objects[resource].get(key)
        if body is not None and self.is_orphan(body):
            self.orphaned(resource, key)

    def _record(self, resource: Resource, change: Change) -> None:
        for observe in self.observers:
            observe(resource, change)
        super()._record(resource, change)

    def _priority(self, pod: str, name: str | None) -> int:
        if name is None:
            return 0
        found = self.view(PRIORITY_CLASSES).get(Key("", name))
        if found is None:
            words = f'pods "{pod}" is forbidden: no PriorityClass with name {name} was found'
            raise Forbidden(words, code=403, reason="Forbidden")
        return int(found["value"])
