"""What lists and watches tell, and that they agree."""

import asyncio
from collections import Counter
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from closeknit.kube.api import Api
from closeknit.kube.errors import Forbidden, Gone, Invalid
from closeknit.kube.reflector import Reflector
from faults.conformance.cases import (
    DEADLINE_S,
    WIDGETS,
    case,
    config_map,
    names,
    pod,
    until,
    version_now,
    watched,
    widget,
)
from faults.kinds import CONFIG_MAPS, PODS


@case
async def the_pages_of_a_list_show_one_moment(api: Api, namespace: str) -> None:
    for index in range(5):
        await api.create(WIDGETS, widget(f"w{index}"), namespace=namespace)
    page = await api.list(WIDGETS, namespace=namespace, limit=2)
    version = page.resource_version
    await api.create(WIDGETS, widget("w9-later"), namespace=namespace)
    items = list(page.items)
    sizes = [len(page.items)]
    while page.continue_token is not None:
        page = await api.list(WIDGETS, namespace=namespace, limit=2, continue_token=page.continue_token)
        assert page.resource_version == version
        items += page.items
        sizes.append(len(page.items))
    assert sizes == [2, 2, 1]
    assert [msgspec.json.decode(item)["metadata"]["name"] for item in items] == ["w0", "w1", "w2", "w3", "w4"]


@case
async def items_of_built_in_kinds_do_not_name_their_kind(api: Api, namespace: str) -> None:
    await api.create(CONFIG_MAPS, config_map("c"), namespace=namespace)
    await api.create(WIDGETS, widget("w"), namespace=namespace)
    found = {
        resource: "kind" in msgspec.json.decode(item)
        for resource in (CONFIG_MAPS, WIDGETS)
        for item in (await api.list(resource, namespace=namespace)).items
    }
    assert found == {CONFIG_MAPS: False, WIDGETS: True}


@case
async def a_watch_tells_changes_in_order_with_the_objects_state(api: Api, namespace: str) -> None:
    since = await version_now(api, WIDGETS, namespace)
    made = await api.create(WIDGETS, widget("w"), namespace=namespace)
    await api.put_status(WIDGETS, "w", made | {"status": {"state": "Up"}}, namespace=namespace)
    stated = await api.get(WIDGETS, "w", namespace=namespace)
    await api.delete(WIDGETS, "w", uid=made["metadata"]["uid"], namespace=namespace)
    again = await api.create(WIDGETS, widget("w"), namespace=namespace)
    events = await watched(api, WIDGETS, namespace, since, 4)
    assert [kind for kind, _ in events] == ["ADDED", "MODIFIED", "DELETED", "ADDED"]
    objects = [obj for _, obj in events]
    assert [objects[0], objects[1], objects[3]] == [made, stated, again]
    last = objects[2]["metadata"].pop("resourceVersion")
    assert int(last) > int(stated["metadata"].pop("resourceVersion"))
    assert objects[2] == stated
    resumed = await watched(api, WIDGETS, namespace, made["metadata"]["resourceVersion"], 3)
    assert [kind for kind, _ in resumed] == ["MODIFIED", "DELETED", "ADDED"]


@case
async def a_watch_tells_what_happens_while_it_is_open(api: Api, namespace: str) -> None:
    since = await version_now(api, CONFIG_MAPS, namespace)
    watching = asyncio.create_task(watched(api, CONFIG_MAPS, namespace, since, 1, field_selector="metadata.name=late"))
    await asyncio.sleep(0.1)  # lets it open; the outcome is the same if it does not
    await api.create(CONFIG_MAPS, config_map("other"), namespace=namespace)
    await api.create(CONFIG_MAPS, config_map("late"), namespace=namespace)
    assert names(await watching) == [("ADDED", "late")]


@case
async def what_leaves_a_label_selector_is_deleted_and_what_enters_is_added(api: Api, namespace: str) -> None:
    since = await version_now(api, WIDGETS, namespace)
    await api.create(WIDGETS, widget("w", labels={"team": "red"}), namespace=namespace)
    for team in ("blue", "red"):
        patch = [{"op": "replace", "path": "/metadata/labels/team", "value": team}]
        await api.json_patch(WIDGETS, "w", patch, namespace=namespace)
    events = await watched(api, WIDGETS, namespace, since, 3, label_selector="team=red")
    assert [(kind, obj["metadata"]["labels"]["team"]) for kind, obj in events] == [
        ("ADDED", "red"),
        ("DELETED", "red"),
        ("ADDED", "red"),
    ]
    for selects, expected in (("team", 1), ("!team", 0), ("team!=red", 0), ("team=red,!x", 1)):
        page = await api.list(WIDGETS, namespace=namespace, label_selector=selects)
        assert len(page.items) == expected, selects


@case
async def a_pod_that_ends_leaves_the_selection_of_live_pods(api: Api, namespace: str) -> None:
    since = await version_now(api, PODS, namespace)

    async def created() -> bool:
        try:
            await api.create(PODS, pod("p"), namespace=namespace)
        except Forbidden:
            return False
        return True

    await until(created, "the namespace has its service account")
    made = await api.get(PODS, "p", namespace=namespace)
    assert made["status"]["phase"] == "Pending"
    done = made | {"status": made["status"] | {"phase": "Succeeded"}}
    await api.put_status(PODS, "p", done, namespace=namespace)
    live = "status.phase!=Succeeded,status.phase!=Failed"
    events = await watched(api, PODS, namespace, since, 2, field_selector=live)
    assert [(kind, obj["status"]["phase"]) for kind, obj in events] == [("ADDED", "Pending"), ("DELETED", "Pending")]
    assert not (await api.list(PODS, namespace=namespace, field_selector=live)).items
    assert len((await api.list(PODS, namespace=namespace, field_selector="spec.nodeName=")).items) == 1
    with pytest.raises(Invalid, match="field label not supported"):
        await api.list(PODS, namespace=namespace, field_selector="spec.colour=red")


@case
async def a_watch_ends_quietly_after_its_time(api: Api, namespace: str) -> None:
    since = await version_now(api, WIDGETS, namespace)
    stream = api.watch(WIDGETS, resource_version=since, timeout_s=1, namespace=namespace)
    async with aclosing(stream), asyncio.timeout(DEADLINE_S):
        kinds = {event.kind async for batch in stream for event in batch}
    assert kinds <= {"BOOKMARK"}


@case
async def a_watch_from_a_version_no_longer_kept_is_gone(api: Api, namespace: str) -> None:
    with pytest.raises(Gone, match="too old resource version") as refusal:
        await watched(api, WIDGETS, namespace, "1", 1)
    assert refusal.value.code == 410


@case
async def a_reflector_beside_a_burst_of_writes_ends_up_equal_to_a_list(api: Api, namespace: str) -> None:
    """A case of the pair: what the reflector concludes from events is what the server has."""
    mine = f"metadata.namespace={namespace}"
    names_told: list[tuple[str, str]] = []
    reflector = Reflector(
        api,
        WIDGETS,
        msgspec.json.Decoder(dict[str, Any]).decode,
        lambda events: names_told.extend((event.kind, event.key.name) for event in events),
        field_selector=mine,
    )
    await api.create(WIDGETS, widget("before"), namespace=namespace)
    running = asyncio.create_task(reflector.run())
    for index in range(20):
        made = await api.create(WIDGETS, widget(f"w{index:02}"), namespace=namespace)
        if index % 2:
            await api.put_status(WIDGETS, f"w{index:02}", made | {"status": {"state": "Up"}}, namespace=namespace)
        else:
            await api.delete(WIDGETS, f"w{index:02}", uid=made["metadata"]["uid"], namespace=namespace)

    async def equal() -> bool:
        page = await api.list(WIDGETS, namespace=namespace)
        return [msgspec.json.decode(item) for item in page.items] == [
            reflector.objects[key] for key in sorted(reflector.objects)
        ]

    await until(equal, "the copy equals the list")
    running.cancel()
    assert reflector.watch_errors_total == 0
    assert {kind for kind, name in names_told if name == "before"} == {"ADDED"}
    counts = Counter(name for kind, name in names_told if kind == "ADDED")
    assert set(counts.values()) == {1}, "everything is added once"
