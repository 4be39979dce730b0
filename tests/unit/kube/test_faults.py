"""The faults that the in-memory Api can be told to have are the faults that happen."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import msgspec
import pytest

from closeknit.kube.api import JsonObject, Key
from closeknit.kube.errors import Conflict, Gone, NotFound, Unavailable
from closeknit.kube.object_identity import Head
from faults import virtual_time
from faults.fault import Delay, EndStream, Fault, HoldEvents, Kill, LoseReply, Refuse
from faults.kinds import CONFIG_MAPS, NODES, PODS
from faults.memory_api import MemoryApi
from faults.store import Store, Write

UNAVAILABLE = Unavailable("down", code=503)


class Killed(BaseException):
    """The process under test has ended here."""


def config_map(name: str, value: str = "1") -> JsonObject:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": value}}


def setting(value: str) -> list[JsonObject]:
    return [{"op": "add", "path": "/data/a", "value": value}]


def play(story: Callable[[MemoryApi], Awaitable[None]], *faults: Fault) -> MemoryApi:
    api = MemoryApi(Store(), faults)

    async def main() -> None:
        await story(api)

    virtual_time.run(main())
    return api


async def events_of(api: MemoryApi, since: int, timeout_s: int = 300) -> list[tuple[float, str, str]]:
    """Time, kind and name of everything but bookmarks until the watch of config maps ends."""
    loop = asyncio.get_running_loop()
    seen: list[tuple[float, str, str]] = []
    stream = api.watch(CONFIG_MAPS, resource_version=str(since), timeout_s=timeout_s)
    async with aclosing(stream):
        async for batch in stream:
            for event in batch:
                name = msgspec.json.decode(event.document)["metadata"].get("name", "")
                seen += [] if event.kind == "BOOKMARK" else [(round(loop.time(), 3), event.kind, name)]
    return seen


def test_the_nth_matching_call_is_refused_and_does_nothing() -> None:
    async def story(api: MemoryApi) -> None:
        await api.create(CONFIG_MAPS, config_map("a"), namespace="ml")
        with pytest.raises(Unavailable, match="down"):
            await api.create(CONFIG_MAPS, config_map("b"), namespace="ml")
        await api.create(CONFIG_MAPS, config_map("c"), namespace="ml")

    api = play(
        story, Fault(Refuse(UNAVAILABLE), "create", CONFIG_MAPS, nth=2), Fault(Refuse(UNAVAILABLE), "create", PODS)
    )
    assert [obj["metadata"]["name"] for obj in api.store.objects(CONFIG_MAPS)] == ["a", "c"]
    assert [call.key.name for call in api.calls] == ["a", "b", "c"]


def test_a_predicate_chooses_the_calls() -> None:
    async def story(api: MemoryApi) -> None:
        await api.create(CONFIG_MAPS, config_map("rank-0"), namespace="ml")
        for _ in range(2):
            with pytest.raises(Unavailable):
                await api.create(CONFIG_MAPS, config_map("rank-1"), namespace="ml")

    play(story, Fault(Refuse(UNAVAILABLE), "write", when=lambda call: call.body["metadata"]["name"] == "rank-1"))


def test_a_lost_reply_leaves_the_write_behind() -> None:
    async def story(api: MemoryApi) -> None:
        with pytest.raises(Unavailable, match="connection reset after the request was sent"):
            await api.create(CONFIG_MAPS, config_map("a"), namespace="ml")
        assert await api.get(CONFIG_MAPS, "a", namespace="ml")

    play(story, Fault(LoseReply(), "write", nth=1))


def test_a_kill_counts_only_what_changed_something() -> None:
    async def story(api: MemoryApi) -> None:
        await api.create(CONFIG_MAPS, config_map("a"), namespace="ml")
        await api.json_patch(CONFIG_MAPS, "a", setting("1"), namespace="ml")  # changes nothing
        with pytest.raises(NotFound):
            await api.json_patch(CONFIG_MAPS, "b", setting("2"), namespace="ml")  # fails
        await api.create(CONFIG_MAPS, config_map("c"), namespace="ml", dry_run=True)
        await api.delete(CONFIG_MAPS, "a", uid="another", namespace="ml")  # not its uid
        with pytest.raises(Killed):
            await api.json_patch(CONFIG_MAPS, "a", setting("2"), namespace="ml")

    api = play(story, Fault(Kill(Killed), "write", nth=2))
    assert api.store.get(CONFIG_MAPS, Key("ml", "a"))["data"] == {"a": "2"}
    key = Key("ml", "a")
    assert api.store.writes == [Write("create", CONFIG_MAPS, key), Write("json_patch", CONFIG_MAPS, key)]


def test_a_delayed_write_happens_late() -> None:
    async def story(api: MemoryApi) -> None:
        writing = asyncio.create_task(api.create(CONFIG_MAPS, config_map("a"), namespace="ml"))
        await asyncio.sleep(9)
        assert api.store.objects(CONFIG_MAPS) == []
        await writing
        assert asyncio.get_running_loop().time() == 10

    play(story, Fault(Delay(10), "create"))


def test_held_events_stall_the_stream_in_order() -> None:
    async def story(api: MemoryApi) -> None:
        since = api.store.rv
        for name in ("a", "b", "c"):
            api.store.create(CONFIG_MAPS, config_map(name), namespace="ml")
        api.store.delete(CONFIG_MAPS, Key("ml", "a"))
        assert await events_of(api, since) == [
            (0, "ADDED", "a"),
            (50, "ADDED", "b"),
            (50, "ADDED", "c"),
            (50, "DELETED", "a"),
        ]

    play(story, Fault(HoldEvents(50, lambda event: b'"name":"b"' in event.document), "watch"))


@pytest.mark.parametrize(("after_events", "seen"), [(0, 0), (1, 1), (2, 2), (3, 3)])
def test_a_stream_ends_after_so_many_events(after_events: int, seen: int) -> None:
    async def story(api: MemoryApi) -> None:
        since = api.store.rv
        for name in ("a", "b", "c", "d"):
            api.store.create(CONFIG_MAPS, config_map(name), namespace="ml")
        assert len(await events_of(api, since)) == seen
        assert asyncio.get_running_loop().time() < 1

    play(story, Fault(EndStream(after_events), "watch"))


def test_history_is_bounded_and_its_end_is_gone() -> None:
    async def main() -> None:
        store = Store(history=3)
        api = MemoryApi(store)
        since = store.rv
        for index in range(3):
            store.create(CONFIG_MAPS, config_map(f"c{index}"), namespace="ml")
        assert len(await events_of(api, since)) == 3
        store.create(CONFIG_MAPS, config_map("c3"), namespace="ml")
        with pytest.raises(Gone, match="too old resource version: 1000"):
            await events_of(api, since)
        assert len(await events_of(api, since + 1)) == 3

    virtual_time.run(main())


def test_a_compaction_ends_lists_that_are_under_way() -> None:
    async def story(api: MemoryApi) -> None:
        for name in ("a", "b"):
            api.store.create(CONFIG_MAPS, config_map(name), namespace="ml")
        page = await api.list(CONFIG_MAPS, limit=1)
        api.store.compact()
        with pytest.raises(Gone) as refusal:
            await api.list(CONFIG_MAPS, limit=1, continue_token=page.continue_token)
        assert refusal.value.code == 410

    play(story)


def test_two_clients_of_one_store_race_as_on_a_server() -> None:
    async def main() -> None:
        store = Store()
        made = store.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}, namespace="ml")
        first, second = MemoryApi(store), MemoryApi(store)
        outcomes = await asyncio.gather(
            *(
                api.put_status(PODS, "p", made | {"status": {"by": name}}, namespace="ml")
                for api, name in ((first, "1"), (second, "2"))
            ),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in outcomes] == [Head, Conflict]

    virtual_time.run(main())


def test_a_node_is_created_with_its_status_and_what_it_owned_goes_with_it() -> None:
    store = Store()
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"capacity": {"cpu": "8"}}}
    node = store.create(NODES, body)
    assert node["status"] == {"capacity": {"cpu": "8"}}
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": node["metadata"]["uid"]}
    owned = config_map("c")
    owned["metadata"]["ownerReferences"] = [owner]
    store.create(CONFIG_MAPS, owned, namespace="ml")
    store.writes.clear()
    store.delete(NODES, Key("", "n"))
    assert store.objects(CONFIG_MAPS) == []
    assert store.writes == [Write("delete", NODES, Key("", "n"))], "collection is nobody's write"


def test_waiting_for_nothing_is_an_error_and_not_a_hang() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="nothing left to wait for"):
        virtual_time.run(main())
