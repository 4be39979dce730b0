"""An API server's storage and strategies, in memory and synchronous: what every client of it sees in the same order.

Tests use it directly as the hand of everybody else (users, kubelets, the scheduler); the code under test goes through
`faults.memory_api`. What it does not do: schemas, admission, RBAC, namespaces' existence, graceful termination of Pods.
"""

import copy
from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jsonpatch
import msgspec

from closeknit.kube.api import JsonObject, Key, ListPage, Resource
from closeknit.kube.errors import AlreadyExists, Conflict, Gone, Invalid, NotFound, TooLarge
from faults.kinds import STOCK_KINDS, Kind
from faults.selectors import Matches
from faults.server_side_apply import merged

FIRST_RV = 1000  # anything before counts as compacted, as on a server that has run for a while
MAX_OBJECT_BYTES = 1_572_864  # etcd's request limit
_SERVER_SET = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "generation")


@dataclass(frozen=True, slots=True)
class Change:
    """One stored write: no `old` is a creation, no `new` a removal."""

    rv: int
    key: Key
    old: JsonObject | None
    new: JsonObject | None


@dataclass(frozen=True, slots=True)
class Write:
    """What somebody's call changed, for counting; removals by garbage collection are nobody's call."""

    verb: str
    resource: Resource
    key: Key


class Store:
    """All objects of a cluster. `history` is how many changes per resource a watch may lag behind."""

    def __init__(
        self,
        kinds: Iterable[Kind] = STOCK_KINDS,
        *,
        history: int = 1000,
        now: Callable[[], str] = lambda: "2026-01-01T00:00:00Z",
    ) -> None:
        self.rv = FIRST_RV
        self.writes: list[Write] = []
        self.listeners: list[Callable[[], None]] = []  # called after every change
        self._kinds = {kind.resource: kind for kind in kinds}
        self._objects: dict[Resource, dict[Key, JsonObject]] = {resource: {} for resource in self._kinds}
        self._history: dict[Resource, deque[Change]] = {resource: deque(maxlen=history) for resource in self._kinds}
        self._oldest: dict[Resource, int] = dict.fromkeys(self._kinds, FIRST_RV)
        self._owned: dict[str, dict[tuple[Resource, Key], None]] = {}  # owner's uid -> its dependants
        self._uids: dict[str, str] = {}  # of living objects -> their namespace
        self._applied: dict[tuple[str, str], dict[str, JsonObject]] = {}  # (uid, subresource) -> manager -> its fields
        self._snapshots: dict[str, tuple[int, Sequence[bytes]]] = {}  # continue token -> what is still to come
        self._created = 0
        self._now = now

    def kind(self, resource: Resource) -> Kind:
        """Raises NotFound for a resource that this server does not serve."""
        if resource not in self._kinds:
            raise NotFound("the server could not find the requested resource", code=404, reason="NotFound")
        return self._kinds[resource]

    def get(self, resource: Resource, key: Key) -> JsonObject:
        """A copy of the object. Raises NotFound."""
        return copy.deepcopy(self._live(resource, key))

    def objects(self, resource: Resource) -> list[JsonObject]:
        """Copies of all objects, in order of namespace and name."""
        stored = self._objects[self.kind(resource).resource]
        return [copy.deepcopy(stored[key]) for key in sorted(stored)]

    def create(self, resource: Resource, body: JsonObject, *, namespace: str = "", dry_run: bool = False) -> JsonObject:
        """The object as stored; a dry run ends before storing. Kinds that are asked, not stored, are answered."""
        kind = self.kind(resource)
        self._check_type(kind, body)
        if kind.answer is not None:
            return {**copy.deepcopy(body), "status": kind.answer(body)}
        new = copy.deepcopy(body)
        metadata = new.setdefault("metadata", {})
        key = Key(namespace, metadata.get("name", ""))
        if not key.name:
            raise Invalid(f"{kind.kind} is invalid: metadata.name: Required value", code=422, reason="Invalid")
        if metadata.setdefault("namespace", namespace) != namespace:
            raise Invalid(
                "the namespace of the provided object does not match the request", code=400, reason="BadRequest"
            )
        if not namespace:
            del metadata["namespace"]
        if "resourceVersion" in metadata:
            raise Invalid("resourceVersion should not be set on objects to be created", code=400, reason="BadRequest")
        if key in self._objects[resource]:
            raise AlreadyExists(f'{resource} "{key.name}" already exists', code=409, reason="AlreadyExists")
        if kind.has_status and not kind.keeps_status_on_create:
            new.pop("status", None)
            if kind.initial_status:
                new["status"] = copy.deepcopy(kind.initial_status)
        self._created += 1
        metadata |= {"uid": f"00000000-0000-4000-8000-{self._created:012d}", "creationTimestamp": self._now()}
        if kind.has_generation:
            metadata["generation"] = 1
        self._check_size(new)
        if dry_run:
            return new
        self._commit(resource, key, None, new)
        self.writes.append(Write("create", resource, key))
        self._collect_if_orphaned(resource, key)
        return copy.deepcopy(new)

    def update(self, resource: Resource, key: Key, body: JsonObject, *, subresource: str | None = None) -> JsonObject:
        """The object after a PUT; a resourceVersion in `body` must be the stored one. Raises Conflict, NotFound."""
        return self._replace("update", resource, key, self._live(resource, key), copy.deepcopy(body), subresource)

    def json_patch(
        self, resource: Resource, key: Key, patch: Sequence[Any], *, subresource: str | None = None
    ) -> JsonObject:
        """The object after the patch. Raises Invalid when an operation fails."""
        live = self._live(resource, key)
        try:
            new = jsonpatch.apply_patch(live, copy.deepcopy(list(patch)))
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
            # The real server says no more than this, whatever the operation was.
            words = "the server rejected our request due to an error in our request"
            raise Invalid(words, code=422, reason="Invalid") from None
        return self._replace("json_patch", resource, key, live, new, subresource)

    def apply(
        self,
        resource: Resource,
        key: Key,
        body: JsonObject,
        *,
        field_manager: str,
        subresource: str | None = None,
        force: bool = True,
    ) -> JsonObject:
        """The object after server-side apply; it is created where it is not there, but not by its subresource."""
        self._check_type(self.kind(resource), body)
        stored = self._objects[resource].get(key)
        if stored is None and subresource is not None:
            raise _not_found(resource, key)
        wanted = {field: copy.deepcopy(value) for field, value in body.items() if field not in ("apiVersion", "kind")}
        wanted["metadata"] = {k: v for k, v in wanted.get("metadata", {}).items() if k not in ("name", "namespace")}
        if subresource is not None:
            wanted = {field: value for field, value in wanted.items() if field == subresource}
        if stored is None:
            result = self.create(resource, body, namespace=key.namespace)
            self._applied[(result["metadata"]["uid"], "")] = {field_manager: wanted}
            return result
        by_manager = self._applied.setdefault((stored["metadata"]["uid"], subresource or ""), {})
        others = [fields for manager, fields in by_manager.items() if manager != field_manager]
        new = merged(stored, wanted, before=by_manager.get(field_manager, {}), others=others, force=force)
        result = self._replace("apply", resource, key, stored, new, subresource)
        by_manager[field_manager] = wanted
        return result

    def delete(self, resource: Resource, key: Key, *, uid: str | None = None) -> None:
        """Removes the object, or marks it where finalizers hold it. Raises NotFound, Conflict for another uid."""
        before = self.rv
        self._delete(resource, key, uid)
        if self.rv != before:
            self.writes.append(Write("delete", resource, key))

    def _delete(self, resource: Resource, key: Key, uid: str | None = None) -> None:
        live = self._live(resource, key)
        if uid is not None and live["metadata"]["uid"] != uid:
            raise _conflict(
                resource,
                key,
                f"the UID in the precondition ({uid}) does not match the UID in record ({live['metadata']['uid']}). "
                "The object might have been deleted and then recreated",
            )
        if not live["metadata"].get("finalizers"):
            self._remove(resource, key)
        elif "deletionTimestamp" not in live["metadata"]:
            new = copy.deepcopy(live)
            new["metadata"] |= {"deletionTimestamp": self._now(), "deletionGracePeriodSeconds": 0}
            self._commit(resource, key, live, new)

    def page(self, resource: Resource, matches: Matches, *, namespace: str | None, limit: int) -> ListPage:
        """The first page of what `matches`, in order of namespace and name."""
        kind = self.kind(resource)
        # The real server leaves these two out of the items of built-in kinds.
        left_out = () if "." in kind.resource.group.removesuffix(".k8s.io") else ("apiVersion", "kind")
        stored = self._objects[resource]
        documents = [
            msgspec.json.encode({field: value for field, value in stored[key].items() if field not in left_out})
            for key in sorted(stored)
            if namespace in (None, key.namespace) and matches(stored[key])
        ]
        return self._page(self.rv, documents, limit)

    def next_page(self, continue_token: str, *, limit: int) -> ListPage:
        """The page after the one that gave this token, from the same moment. Raises Gone after a compaction."""
        if continue_token not in self._snapshots:
            raise Gone(
                "The provided continue parameter is too old to display a consistent list", code=410, reason="Expired"
            )
        rv, documents = self._snapshots.pop(continue_token)
        return self._page(rv, documents, limit)

    def _page(self, rv: int, documents: Sequence[bytes], limit: int) -> ListPage:
        token = None
        if len(documents) > limit:
            token = urlsafe_b64encode(f"{rv}/{len(documents)}/{len(self._snapshots)}".encode()).decode()
            self._snapshots[token] = (rv, documents[limit:])
        return ListPage(documents[:limit], str(rv), token)

    def changes(self, resource: Resource, after_rv: int) -> list[Change]:
        """What happened after a version, oldest first. Raises Gone if that is no longer kept."""
        kind = self.kind(resource)
        if after_rv < self._oldest[kind.resource]:
            words = f"too old resource version: {after_rv} ({self._oldest[resource]})"
            raise Gone(words, code=410, reason="Expired")
        found: list[Change] = []
        for change in reversed(self._history[resource]):
            if change.rv <= after_rv:
                break
            found.append(change)
        return found[::-1]

    def compact(self) -> None:
        """Forgets all history: watches from before now, and lists begun before now, are Gone."""
        self._snapshots.clear()
        for resource, history in self._history.items():
            history.clear()
            self._oldest[resource] = self.rv

    def _live(self, resource: Resource, key: Key) -> JsonObject:
        stored = self._objects[self.kind(resource).resource]
        if key not in stored:
            raise _not_found(resource, key)
        return stored[key]

    def _replace(
        self, verb: str, resource: Resource, key: Key, live: JsonObject, new: JsonObject, subresource: str | None
    ) -> JsonObject:
        """Stores `new` over `live` as the kind's strategy allows: the status or everything else, never both."""
        kind = self.kind(resource)
        self._check_type(kind, new)
        if (
            new["metadata"].get("resourceVersion", live["metadata"]["resourceVersion"])
            != live["metadata"]["resourceVersion"]
        ):
            words = "the object has been modified; please apply your changes to the latest version and try again"
            raise _conflict(resource, key, words)
        if new["metadata"].get("uid", live["metadata"]["uid"]) != live["metadata"]["uid"]:
            raise _conflict(resource, key, "Precondition failed: UID in precondition does not match")
        if subresource == "status":
            if not kind.has_status:
                raise NotFound("the server could not find the requested resource", code=404, reason="NotFound")
            new = {**live, "status": new["status"]} if "status" in new else _without_status(live)
        else:
            if kind.has_status:
                new = _without_status(new) | ({"status": live["status"]} if "status" in live else {})
            metadata = {field: value for field, value in new["metadata"].items() if field not in _SERVER_SET}
            own = {field: live["metadata"][field] for field in _SERVER_SET if field in live["metadata"]}
            new = new | {"metadata": metadata | own | {"resourceVersion": live["metadata"]["resourceVersion"]}}
            if kind.has_generation and _content(new) != _content(live):
                new["metadata"]["generation"] += 1
        if new == live:  # a write that changes nothing is none: no version, no event
            return copy.deepcopy(live)
        self._check_size(new)
        stored = self._commit(resource, key, live, copy.deepcopy(new))
        self.writes.append(Write(verb, resource, key))
        if "deletionTimestamp" in stored["metadata"] and not stored["metadata"].get("finalizers"):
            self._remove(resource, key)
        return copy.deepcopy(stored)

    def _commit(self, resource: Resource, key: Key, old: JsonObject | None, new: JsonObject) -> JsonObject:
        self.rv += 1
        new["metadata"]["resourceVersion"] = str(self.rv)
        self._objects[resource][key] = new
        self._uids[new["metadata"]["uid"]] = key.namespace
        self._index_owners(resource, key, old, new)
        self._record(resource, Change(self.rv, key, old, new))
        return new

    def _remove(self, resource: Resource, key: Key) -> None:
        """Removes an object, and then everything that only it owned."""
        old = self._objects[resource].pop(key)
        self.rv += 1
        uid = old["metadata"]["uid"]
        del self._uids[uid]
        self._index_owners(resource, key, old, None)
        self._record(resource, Change(self.rv, key, old, None))
        for dependant in list(self._owned.pop(uid, ())):
            self._collect_if_orphaned(*dependant)

    def _collect_if_orphaned(self, resource: Resource, key: Key) -> None:
        """Garbage collection: an object whose owners are all gone goes. An owner in another namespace is no owner."""
        stored = self._objects[resource].get(key)
        owners = list(_owners(stored))
        if owners and not any(self._uids.get(uid) in ("", key.namespace) for uid in owners):
            self._delete(resource, key)

    def _index_owners(self, resource: Resource, key: Key, old: JsonObject | None, new: JsonObject | None) -> None:
        for uid in _owners(old):
            self._owned.get(uid, {}).pop((resource, key), None)
        for uid in _owners(new):
            self._owned.setdefault(uid, {})[(resource, key)] = None

    def _record(self, resource: Resource, change: Change) -> None:
        history = self._history[resource]
        if len(history) == history.maxlen:
            self._oldest[resource] = history[0].rv
        history.append(change)
        for listener in list(self.listeners):
            listener()

    def _check_type(self, kind: Kind, body: JsonObject) -> None:
        found = (body.get("apiVersion"), body.get("kind"))
        if found != (kind.resource.api_version, kind.kind):
            words = f"the object provided is unrecognized: {found[0]} {found[1]} for {kind.resource}"
            raise Invalid(words, code=400, reason="BadRequest")

    def _check_size(self, body: JsonObject) -> None:
        if len(msgspec.json.encode(body)) > MAX_OBJECT_BYTES:
            raise TooLarge("etcdserver: request is too large", code=500)


def _owners(body: JsonObject | None) -> Iterator[str]:
    if body is not None:
        yield from (reference["uid"] for reference in body["metadata"].get("ownerReferences") or ())


def _without_status(body: JsonObject) -> JsonObject:
    return {field: value for field, value in body.items() if field != "status"}


def _content(body: JsonObject) -> JsonObject:
    return {field: value for field, value in body.items() if field not in ("metadata", "status")}


def _not_found(resource: Resource, key: Key) -> NotFound:
    return NotFound(f'{resource} "{key.name}" not found', code=404, reason="NotFound")


def _conflict(resource: Resource, key: Key, words: str) -> Conflict:
    return Conflict(f'Operation cannot be fulfilled on {resource} "{key.name}": {words}', code=409, reason="Conflict")
