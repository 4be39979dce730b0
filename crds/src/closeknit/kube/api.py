"""The protocol `Api`: what this project asks of an API server, and the values that go in and out.

Single objects come back as plain dicts, lists and watches as raw JSON documents, which the caller decodes into the few
fields he uses: nested at most one level deeper than `closeknit.api.text.nesting.MAX_DEPTH`, with what was below
emptied, and otherwise as they came, JSON or not. Every method may raise the errors of `closeknit.kube.errors`.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol
from urllib.parse import quote

from closeknit.kube.object_identity import Head

JsonObject = dict[str, Any]


class Key(NamedTuple):
    """Name of an object within its resource; `namespace` is empty for cluster-scoped ones. Sorts as kubectl does."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Resource:
    """A collection of the API server, as its URL names it: `Resource("closeknit.dev", "v1alpha1", "trainingjobs")`."""

    group: str  # empty for the core group
    version: str
    plural: str
    namespaced: bool = True

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        """The value of `apiVersion` in this resource's objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path of the collection, of one object or of its subresource. No namespace: all of them.

        Raises ValueError where the namespace does not go with the resource, or a name has none.
        """
        if namespace is not None and not self.namespaced:
            raise ValueError(f"{self} is cluster-scoped; it was asked for in namespace {namespace}")
        if name is not None and namespace is None and self.namespaced:
            raise ValueError(f"{self} is namespaced; {name} was asked for without a namespace")
        parts = [f"/apis/{self.group}" if self.group else "/api", self.version]
        if namespace is not None:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, subresource) if part is not None]
        return "/".join(parts)


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of a list. All pages of one list show the same moment, `resource_version`."""

    items: Sequence[bytes]  # one JSON document each; those of built-in kinds carry no apiVersion and kind
    resource_version: str
    continue_token: str | None  # asks for the next page; None on the last


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change. What leaves a selector's reach is DELETED with its old state; a BOOKMARK has metadata only.

    UNREADABLE is what was sent in the place of an event and is none: some object may have changed.
    """

    kind: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "UNREADABLE"]
    document: bytes  # the object's JSON


class Api(Protocol):
    """The API server. Two implementations: `closeknit.kube.http.http_api.HttpApi`, and in memory under tests/faults."""

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> JsonObject:
        """The object. Raises NotFound."""
        ...

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        limit: int = 500,
        continue_token: str | None = None,
        field_selector: str | None = None,
        label_selector: str | None = None,
        cached: bool = False,
    ) -> ListPage:
        """One page of the resource as it is now, not as some cache remembers it: `limit` objects at most, and fewer
        where they are large. `cached`: all of it at once, as a cache of the API server remembers it, which costs that
        least and may be a moment old. Raises Gone for a token too old."""
        ...

    def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        timeout_s: int,
        namespace: str | None = None,
        field_selector: str | None = None,
        label_selector: str | None = None,
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        """Changes after `resource_version` in order, bookmarks among them; each item is what was readable at once.

        The first item is empty: the server has accepted the watch, which then may say nothing for as long as it lasts.
        Ends quietly when the server ends it, after `timeout_s` or before. An error inside the stream is raised: Gone
        when that version is no longer kept. Close it with `contextlib.aclosing`.
        """
        ...

    async def create(
        self, resource: Resource, body: JsonObject, *, namespace: str | None = None, dry_run: bool = False
    ) -> JsonObject:
        """The object as stored; with `dry_run` it passes admission and is not stored. Raises AlreadyExists."""
        ...

    async def make(
        self, resource: Resource, body: JsonObject, *, namespace: str | None = None, dry_run: bool = False
    ) -> Head:
        """`create` for a caller that knows the object's content, and reads only the head of the answer."""
        ...

    async def json_patch(
        self,
        resource: Resource,
        name: str,
        patch: Sequence[Mapping[str, Any]],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> JsonObject:
        """The object after the patch. A failing `test` operation raises Invalid and changes nothing."""
        ...

    async def apply(
        self,
        resource: Resource,
        name: str,
        body: JsonObject,
        *,
        field_manager: str,
        namespace: str | None = None,
        subresource: str | None = None,
        force: bool = True,
    ) -> JsonObject:
        """The object after server-side apply: `body` is all that `field_manager` wants, what it wanted before goes.

        Creates the object, but not through a subresource. Without `force`, others' fields raise Conflict.
        """
        ...

    async def put_status(
        self, resource: Resource, name: str, body: JsonObject, *, namespace: str | None = None
    ) -> Head:
        """Gives the object the status of `body`, a compare-and-swap on `body["metadata"]["resourceVersion"]`. What is
        stored then comes back by its head.

        Raises Conflict if the object has another version by now.
        """
        ...

    async def delete(
        self, resource: Resource, name: str, *, uid: str, namespace: str | None = None, is_forced: bool = False
    ) -> None:
        """Asks for the deletion of the object that has this uid. Gone already, or its name reused, is success.
        `is_forced`: without a grace period, so that a Pod goes before its kubelet has said that it has ended."""
        ...
