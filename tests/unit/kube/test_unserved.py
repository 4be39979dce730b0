"""A resource that a cluster need not serve, and of which some serve an older version. In memory, on a virtual clock."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import msgspec
import pytest

from closeknit.kube.api import Key, Resource
from closeknit.kube.errors import ApiError, Forbidden, NotFound
from closeknit.kube.reflector import Event, Reflector
from faults import virtual_time
from faults.fault import Fault, Refuse
from faults.kinds import Kind
from faults.memory_api import MemoryApi
from faults.store import Store

NEW, OLD = (Resource("resource.k8s.io", version, "devicetaintrules", namespaced=False) for version in ("v1", "v1beta2"))
NAME = Key("", "a")


def name_of(document: bytes) -> str:
    found: str = msgspec.json.decode(document)["metadata"]["name"]
    return found


class Seen:
    """A reflector of both versions over a server that serves some of them."""

    def __init__(self, served: Sequence[Resource], *faults: Fault) -> None:
        self.store = Store([Kind(resource, "DeviceTaintRule") for resource in served])
        for resource in served:
            body = {"apiVersion": resource.api_version, "kind": "DeviceTaintRule", "metadata": {"name": "a"}}
            self.store.create(resource, body)
        self.api = MemoryApi(self.store, faults)
        self.told: list[str] = []
        self.reflector = Reflector(self.api, (NEW, OLD), name_of, self.take, jitter=lambda: 1.0)

    def take(self, events: Sequence[Event[str]]) -> None:
        self.told += [event.kind for event in events]

    def asked(self) -> list[str]:
        return [f"{call.verb} {call.resource.version}" for call in self.api.calls]

    def during(self, story: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            running = asyncio.create_task(self.reflector.run())
            await story()
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

        virtual_time.run(main())


@pytest.mark.parametrize(
    ("served", "asked"),
    [
        ([NEW, OLD], ["list v1", "watch v1"]),
        ([OLD], ["list v1", "list v1beta2", "watch v1beta2"]),
    ],
)
def test_the_newest_version_that_is_served_is_followed(served: list[Resource], asked: list[str]) -> None:
    seen = Seen(served)

    async def story() -> None:
        await seen.reflector.synced.wait()
        await asyncio.sleep(0.001)

    seen.during(story)
    assert (seen.asked(), seen.told, seen.reflector.watch_errors_total) == (asked, ["ADDED"], 0)


@pytest.mark.parametrize("error", [None, Forbidden("no right", code=403)])
def test_where_none_is_served_the_copy_is_complete_and_empty_and_asked_again_every_minute(
    error: ApiError | None,
) -> None:
    seen = Seen([] if error is None else [NEW, OLD], *([] if error is None else [Fault(Refuse(error), "list")]))

    async def story() -> None:
        await asyncio.wait_for(seen.reflector.synced.wait(), 1)
        await asyncio.sleep(130)
        assert (seen.reflector.objects, seen.reflector.last_error) == ({}, None)
        assert seen.reflector.last_activity_s < 70

    seen.during(story)
    assert seen.asked() == ["list v1", "list v1beta2"] * 3


def test_what_is_served_no_longer_is_gone() -> None:
    is_gone = False
    gone = Refuse(NotFound("the server could not find the requested resource", code=404))
    seen = Seen([OLD], Fault(gone, when=lambda _: is_gone))

    async def story() -> None:
        nonlocal is_gone
        await asyncio.sleep(5)
        assert seen.reflector.objects == {NAME: "a"}
        is_gone = True
        seen.api.end_streams()
        await asyncio.sleep(1)
        assert seen.reflector.objects == {}
        is_gone = False
        await asyncio.sleep(60)
        assert seen.reflector.objects == {NAME: "a"}

    seen.during(story)
    assert seen.told == ["ADDED", "DELETED", "ADDED"]
