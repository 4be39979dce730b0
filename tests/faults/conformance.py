"""What every `Api` must do: one suite, run in memory and on a real API server.

A case is a coroutine function of an Api and of a namespace of its own; `CASES` has them by names that read as
sentences. On a real server somebody has installed `WIDGET_CRD` before.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from closeknit.kube.api import Api, JsonObject, Resource, WatchEvent
from closeknit.kube.errors import AlreadyExists, Conflict, Forbidden, Gone, Invalid, NotFound, TooLarge
from closeknit.kube.reflector import Reflector
from faults.kinds import CONFIG_MAPS, PODS, SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, Kind

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


def _case(case: Case) -> Case:
    CASES[getattr(case, "__name__", "").replace("_", " ")] = case
    return case


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


@_case
async def a_created_object_comes_back_as_stored_and_its_status_is_dropped(api: Api, namespace: str) -> None:
    made = await api.create(WIDGETS, widget("w") | {"status": {"state": "smuggled"}}, namespace=namespace)
    metadata = made["metadata"]
    assert (metadata["name"], metadata["namespace"], metadata["generation"]) == ("w", namespace, 1)
    assert metadata["uid"]
    assert int(metadata["resourceVersion"]) > 0
    assert metadata["creationTimestamp"].endswith("Z")
    assert "status" not in made
    assert await api.get(WIDGETS, "w", namespace=namespace) == made


@_case
async def of_what_is_made_the_head_is_told(api: Api, namespace: str) -> None:
    tried = await api.make(WIDGETS, widget("w"), namespace=namespace, dry_run=True)
    assert (tried.name, tried.namespace, tried.resourceVersion) == ("w", namespace, "")
    made = await api.make(WIDGETS, widget("w"), namespace=namespace)
    stored = (await api.get(WIDGETS, "w", namespace=namespace))["metadata"]
    assert (made.name, made.namespace, made.uid) == ("w", namespace, stored["uid"])
    assert made.resourceVersion == stored["resourceVersion"]
    with pytest.raises(AlreadyExists):
        await api.make(WIDGETS, widget("w"), namespace=namespace)


@_case
async def a_taken_name_is_refused(api: Api, namespace: str) -> None:
    await api.create(CONFIG_MAPS, config_map("c"), namespace=namespace)
    with pytest.raises(AlreadyExists, match='configmaps "c" already exists') as refusal:
        await api.create(CONFIG_MAPS, config_map("c"), namespace=namespace)
    assert (refusal.value.code, refusal.value.reason) == (409, "AlreadyExists")


@_case
async def a_dry_run_stores_nothing_but_sees_a_taken_name(api: Api, namespace: str) -> None:
    made = await api.create(WIDGETS, widget("w"), namespace=namespace, dry_run=True)
    assert made["metadata"]["uid"]
    assert await is_absent(api, WIDGETS, "w", namespace)
    await api.create(WIDGETS, widget("w"), namespace=namespace)
    with pytest.raises(AlreadyExists):
        await api.create(WIDGETS, widget("w"), namespace=namespace, dry_run=True)


@_case
async def what_is_not_there_is_not_found(api: Api, namespace: str) -> None:
    with pytest.raises(NotFound, match='"none" not found') as refusal:
        await api.get(CONFIG_MAPS, "none", namespace=namespace)
    assert (refusal.value.code, refusal.value.reason) == (404, "NotFound")
    with pytest.raises(NotFound):
        await api.json_patch(WIDGETS, "none", [{"op": "add", "path": "/spec/size", "value": 2}], namespace=namespace)
    with pytest.raises(NotFound):
        await api.list(Resource("conformance.closeknit.dev", "v1", "gadgets"))


@_case
async def a_namespace_must_go_with_the_resource(api: Api, namespace: str) -> None:
    with pytest.raises(ValueError, match="configmaps is namespaced; c was asked for without a namespace"):
        await api.get(CONFIG_MAPS, "c")
    with pytest.raises(ValueError, match=f"nodes is cluster-scoped; it was asked for in namespace {namespace}"):
        await api.get(Resource("", "v1", "nodes", namespaced=False), "n", namespace=namespace)


@_case
async def a_body_of_another_kind_is_invalid(api: Api, namespace: str) -> None:
    with pytest.raises(Invalid) as refusal:
        await api.create(WIDGETS, config_map("c"), namespace=namespace)
    assert refusal.value.code == 400


@_case
async def generation_counts_changes_of_spec_alone(api: Api, namespace: str) -> None:
    made = await api.create(WIDGETS, widget("w"), namespace=namespace)
    label = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
    labelled = await api.json_patch(WIDGETS, "w", label, namespace=namespace)
    assert labelled["metadata"]["generation"] == 1
    stated = await api.put_status(WIDGETS, "w", labelled | {"status": {"state": "Up"}}, namespace=namespace)
    assert stated["metadata"]["generation"] == 1
    grow = [{"op": "replace", "path": "/spec/size", "value": 2}]
    grown = await api.json_patch(WIDGETS, "w", grow, namespace=namespace)
    assert grown["metadata"]["generation"] == 2
    versions = [int(obj["metadata"]["resourceVersion"]) for obj in (made, labelled, stated, grown)]
    assert versions == sorted(set(versions))


@_case
async def put_status_changes_nothing_but_status(api: Api, namespace: str) -> None:
    made = await api.create(WIDGETS, widget("w"), namespace=namespace)
    body = made | {"spec": {"size": 9}, "status": {"state": "Up"}}
    stored = await api.put_status(WIDGETS, "w", body, namespace=namespace)
    assert (stored["spec"], stored["status"]) == ({"size": 1}, {"state": "Up"})


@_case
async def put_status_is_a_compare_and_swap(api: Api, namespace: str) -> None:
    made = await api.create(WIDGETS, widget("w"), namespace=namespace)
    await api.put_status(WIDGETS, "w", made | {"status": {"state": "First"}}, namespace=namespace)
    with pytest.raises(Conflict, match="the object has been modified") as refusal:
        await api.put_status(WIDGETS, "w", made | {"status": {"state": "Second"}}, namespace=namespace)
    assert (refusal.value.code, refusal.value.reason) == (409, "Conflict")
    assert (await api.get(WIDGETS, "w", namespace=namespace))["status"] == {"state": "First"}
    with pytest.raises(ValueError, match=r"put_status of widgets.* w needs metadata.resourceVersion"):
        await api.put_status(WIDGETS, "w", widget("w"), namespace=namespace)


@_case
async def a_main_write_leaves_status_alone(api: Api, namespace: str) -> None:
    made = await api.create(WIDGETS, widget("w"), namespace=namespace)
    await api.put_status(WIDGETS, "w", made | {"status": {"state": "Up"}}, namespace=namespace)
    patch = [
        {"op": "replace", "path": "/status/state", "value": "Smuggled"},
        {"op": "add", "path": "/spec/colour", "value": "red"},
    ]
    patched = await api.json_patch(WIDGETS, "w", patch, namespace=namespace)
    assert (patched["spec"], patched["status"]) == ({"size": 1, "colour": "red"}, {"state": "Up"})


@_case
async def a_json_patch_of_the_status_subresource_leaves_spec_alone(api: Api, namespace: str) -> None:
    await api.create(WIDGETS, widget("w"), namespace=namespace)
    patch: list[JsonObject] = [
        {"op": "add", "path": "/status", "value": {"state": "Up"}},
        {"op": "replace", "path": "/spec/size", "value": 9},
    ]
    patched = await api.json_patch(WIDGETS, "w", patch, namespace=namespace, subresource="status")
    assert (patched["spec"], patched["status"]) == ({"size": 1}, {"state": "Up"})


@_case
async def a_failing_json_patch_test_is_invalid_and_changes_nothing(api: Api, namespace: str) -> None:
    made = await api.create(WIDGETS, widget("w"), namespace=namespace)
    grow: JsonObject = {"op": "replace", "path": "/spec/size", "value": 2}
    failing: list[JsonObject] = [
        {"op": "test", "path": "/metadata/uid", "value": "another"},
        {"op": "test", "path": "/metadata/resourceVersion", "value": "1"},
        {"op": "test", "path": "/spec/missing", "value": 1},
        {"op": "remove", "path": "/spec/missing"},
    ]
    for test in failing:
        with pytest.raises(Invalid, match="the server rejected our request due to an error in our request") as refusal:
            await api.json_patch(WIDGETS, "w", [test, grow], namespace=namespace)
        assert refusal.value.code == 422
    assert await api.get(WIDGETS, "w", namespace=namespace) == made
    passing = {"op": "test", "path": "/metadata/resourceVersion", "value": made["metadata"]["resourceVersion"]}
    patched = await api.json_patch(WIDGETS, "w", [passing, grow], namespace=namespace)
    assert patched["spec"] == {"size": 2}


@_case
async def a_write_that_changes_nothing_makes_no_version_and_no_event(api: Api, namespace: str) -> None:
    made = await api.create(WIDGETS, widget("w"), namespace=namespace)
    since = made["metadata"]["resourceVersion"]
    same = [{"op": "replace", "path": "/spec/size", "value": 1}]
    assert (await api.json_patch(WIDGETS, "w", same, namespace=namespace))["metadata"]["resourceVersion"] == since
    await api.create(WIDGETS, widget("next"), namespace=namespace)
    assert names(await watched(api, WIDGETS, namespace, since, 1)) == [("ADDED", "next")]


@_case
async def apply_creates_then_owns_what_it_names(api: Api, namespace: str) -> None:
    async def apply(spec: JsonObject, **labels: str) -> JsonObject:
        body = widget("w", spec=spec, labels=labels)
        return await api.apply(WIDGETS, "w", body, field_manager="one", namespace=namespace)

    made = await apply({"size": 1, "list": [1, 2]}, mine="a", old="b")
    assert made["metadata"]["generation"] == 1
    foreign = [{"op": "add", "path": "/metadata/labels/foreign", "value": "c"}]
    await api.json_patch(WIDGETS, "w", foreign, namespace=namespace)
    changed = await apply({"list": [3]}, mine="a2")
    assert changed["metadata"]["labels"] == {"mine": "a2", "foreign": "c"}
    assert changed["spec"] == {"list": [3]}
    again = await apply({"list": [3]}, mine="a2")
    assert again["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]


@_case
async def apply_without_force_does_not_take_the_fields_of_others(api: Api, namespace: str) -> None:
    body = widget("w", spec={"size": 1})
    await api.apply(WIDGETS, "w", body, field_manager="one", namespace=namespace)
    other = widget("w", spec={"size": 2})
    with pytest.raises(Conflict):
        await api.apply(WIDGETS, "w", other, field_manager="two", namespace=namespace, force=False)
    taken = await api.apply(WIDGETS, "w", other, field_manager="two", namespace=namespace)
    assert taken["spec"] == {"size": 2}


@_case
async def apply_of_status_changes_status_alone_and_creates_nothing(api: Api, namespace: str) -> None:
    body = widget("w", spec={"size": 9}) | {"status": {"state": "Up"}}
    with pytest.raises(NotFound):
        await api.apply(WIDGETS, "w", body, field_manager="one", namespace=namespace, subresource="status")
    await api.create(WIDGETS, widget("w"), namespace=namespace)
    del body["spec"]
    stored = await api.apply(WIDGETS, "w", body, field_manager="one", namespace=namespace, subresource="status")
    assert (stored["spec"], stored["status"]) == ({"size": 1}, {"state": "Up"})


@_case
async def delete_wants_the_uid_and_gone_already_is_success(api: Api, namespace: str) -> None:
    made = await api.create(CONFIG_MAPS, config_map("c"), namespace=namespace)
    await api.delete(CONFIG_MAPS, "c", uid="00000000-0000-4000-8000-ffffffffffff", namespace=namespace)
    assert await api.get(CONFIG_MAPS, "c", namespace=namespace) == made
    for _ in range(2):
        await api.delete(CONFIG_MAPS, "c", uid=made["metadata"]["uid"], namespace=namespace)
        assert await is_absent(api, CONFIG_MAPS, "c", namespace)


@_case
async def a_finalizer_holds_a_deleted_object(api: Api, namespace: str) -> None:
    body = config_map("c", finalizers=["conformance.closeknit.dev/hold"])
    made = await api.create(CONFIG_MAPS, body, namespace=namespace)
    await api.delete(CONFIG_MAPS, "c", uid=made["metadata"]["uid"], namespace=namespace)
    held = await api.get(CONFIG_MAPS, "c", namespace=namespace)
    assert held["metadata"]["deletionTimestamp"]
    release = [{"op": "remove", "path": "/metadata/finalizers"}]
    await api.json_patch(CONFIG_MAPS, "c", release, namespace=namespace)
    assert await is_absent(api, CONFIG_MAPS, "c", namespace)


@_case
async def what_only_a_deleted_object_owned_is_collected(api: Api, namespace: str) -> None:
    def owned(name: str, uid: str) -> JsonObject:
        return config_map(name, ownerReferences=[{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": uid}])

    owner = await api.create(CONFIG_MAPS, config_map("o"), namespace=namespace)
    await api.create(CONFIG_MAPS, owned("child", owner["metadata"]["uid"]), namespace=namespace)
    await api.create(CONFIG_MAPS, config_map("free"), namespace=namespace)
    await api.create(CONFIG_MAPS, owned("orphan", "00000000-0000-4000-8000-ffffffffffff"), namespace=namespace)
    await until(lambda: is_absent(api, CONFIG_MAPS, "orphan", namespace), "an object of a dead owner goes")
    assert not await is_absent(api, CONFIG_MAPS, "child", namespace)
    await api.delete(CONFIG_MAPS, "o", uid=owner["metadata"]["uid"], namespace=namespace)
    await until(lambda: is_absent(api, CONFIG_MAPS, "child", namespace), "the child goes with its owner")
    assert not await is_absent(api, CONFIG_MAPS, "free", namespace)


@_case
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


@_case
async def items_of_built_in_kinds_do_not_name_their_kind(api: Api, namespace: str) -> None:
    await api.create(CONFIG_MAPS, config_map("c"), namespace=namespace)
    await api.create(WIDGETS, widget("w"), namespace=namespace)
    found = {
        resource: "kind" in msgspec.json.decode(item)
        for resource in (CONFIG_MAPS, WIDGETS)
        for item in (await api.list(resource, namespace=namespace)).items
    }
    assert found == {CONFIG_MAPS: False, WIDGETS: True}


@_case
async def a_watch_tells_changes_in_order_with_the_objects_state(api: Api, namespace: str) -> None:
    since = await version_now(api, WIDGETS, namespace)
    made = await api.create(WIDGETS, widget("w"), namespace=namespace)
    stated = await api.put_status(WIDGETS, "w", made | {"status": {"state": "Up"}}, namespace=namespace)
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


@_case
async def a_watch_tells_what_happens_while_it_is_open(api: Api, namespace: str) -> None:
    since = await version_now(api, CONFIG_MAPS, namespace)
    watching = asyncio.create_task(watched(api, CONFIG_MAPS, namespace, since, 1, field_selector="metadata.name=late"))
    await asyncio.sleep(0.1)  # lets it open; the outcome is the same if it does not
    await api.create(CONFIG_MAPS, config_map("other"), namespace=namespace)
    await api.create(CONFIG_MAPS, config_map("late"), namespace=namespace)
    assert names(await watching) == [("ADDED", "late")]


@_case
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


@_case
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


@_case
async def a_watch_ends_quietly_after_its_time(api: Api, namespace: str) -> None:
    since = await version_now(api, WIDGETS, namespace)
    stream = api.watch(WIDGETS, resource_version=since, timeout_s=1, namespace=namespace)
    async with aclosing(stream), asyncio.timeout(DEADLINE_S):
        kinds = {event.kind async for batch in stream for event in batch}
    assert kinds <= {"BOOKMARK"}


@_case
async def a_watch_from_a_version_no_longer_kept_is_gone(api: Api, namespace: str) -> None:
    with pytest.raises(Gone, match="too old resource version") as refusal:
        await watched(api, WIDGETS, namespace, "1", 1)
    assert refusal.value.code == 410


@_case
async def a_large_object_arrives_whole_and_a_larger_one_is_too_large(api: Api, namespace: str) -> None:
    since = await version_now(api, WIDGETS, namespace)
    blob = "x" * 1_400_000
    await api.create(WIDGETS, widget("w", spec={"blob": blob}), namespace=namespace)
    ((kind, obj),) = await watched(api, WIDGETS, namespace, since, 1)
    assert (kind, obj["spec"]["blob"] == blob) == ("ADDED", True)
    for size in (1_700_000, 2_400_000):
        with pytest.raises(TooLarge):
            await api.create(WIDGETS, widget("larger", spec={"blob": "x" * size}), namespace=namespace)


@_case
async def reviews_are_answered(api: Api, namespace: str) -> None:
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "nonsense"}}
    review = await api.create(TOKEN_REVIEWS, token)
    assert not review["status"].get("authenticated", False)
    access = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": "nobody", "nonResourceAttributes": {"path": f"/{namespace}", "verb": "get"}},
    }
    assert (await api.create(SUBJECT_ACCESS_REVIEWS, access))["status"]["allowed"] is False


@_case
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
