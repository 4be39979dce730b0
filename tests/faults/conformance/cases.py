"""What the conformance cases share: their list, the objects that they write, and how they wait."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from closeknit.kube.api import Api, JsonObject, Resource, WatchEvent
from closeknit.kube.errors import NotFound
from faults.kinds import Kind

DEADLINE_S = 30.0  # for what a real cluster does in its own time: garbage collection, service accounts
WIDGETS = Resource("conformance.closeknit.dev", "v1", "widgets")
WIDGET_KIND = Kind(WIDGETS, "Widget", has_status=True, has_generation=True)
_OPAQUE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
WIDGET_CRD: JsonObject = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{WIDGETS.plural}.{WIDGETS.group}"},
    "spec": {
        "group": WIDGETS.group,
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [
            {
                "name": WIDGETS.version,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _OPAQUE, "status": _OPAQUE}}},
            }
        ],
    },
}
Case = Callable[[Api, str], Awaitable[None]]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    """Adds it to the list."""
    CASES[getattr(function, "__name__", "").replace("_", " ")] = function
    return function


def widget(name: str, *, spec: Any = None, **metadata: Any) -> JsonObject:
    return {
        "apiVersion": WIDGETS.api_version,
        "kind": "Widget",
        "metadata": {"name": name, **metadata},
        "spec": spec if spec is not None else {"size": 1},
    }


def config_map(name: str, **metadata: Any) -> JsonObject:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": {"a": "1"}}


def pod(name: str) -> JsonObject:
    spec = {"containers": [{"name": "main", "image": "none"}], "schedulerName": "nobody"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """Waits until it holds; fails with `what` after DEADLINE_S."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not await holds():  # noqa: ASYNC110 -- the server has no event to offer for this
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"not within {DEADLINE_S:.0f} s: {what}")


async def is_absent(api: Api, resource: Resource, name: str, namespace: str) -> bool:
    try:
        await api.get(resource, name, namespace=namespace)
    except NotFound:
        return True
    return False


async def version_now(api: Api, resource: Resource, namespace: str) -> str:
    return (await api.list(resource, namespace=namespace)).resource_version


async def watched(
    api: Api, resource: Resource, namespace: str, since: str, count: int, **selectors: str
) -> Sequence[tuple[str, JsonObject]]:
    """The first `count` events after `since`, without bookmarks: kind and object."""
    found: list[WatchEvent] = []
    is_open = False
    stream = api.watch(resource, resource_version=since, timeout_s=int(DEADLINE_S), namespace=namespace, **selectors)
    async with aclosing(stream):
        async for batch in stream:
            assert bool(batch) == is_open, "empty once, when the watch is accepted"
            is_open = True
            found += [event for event in batch if event.kind != "BOOKMARK"]
            if len(found) >= count:
                break
    assert len(found) == count, f"expected {count} events, got {[event.kind for event in found]}"
    return [(event.kind, msgspec.json.decode(event.document)) for event in found]


def names(events: Sequence[tuple[str, JsonObject]]) -> list[tuple[str, str]]:
    return [(kind, obj["metadata"]["name"]) for kind, obj in events]
