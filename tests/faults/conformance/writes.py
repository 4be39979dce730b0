"""What is written: as a whole, in parts, by several, and what a refusal says."""

import pytest

from closeknit.kube.api import Api, JsonObject, Resource
from closeknit.kube.errors import AlreadyExists, Conflict, Invalid, NotFound, TooLarge
from faults.conformance.cases import (
    WIDGETS,
    case,
    config_map,
    is_absent,
    names,
    until,
    version_now,
    watched,
    widget,
)
from faults.kinds import CONFIG_MAPS, SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS


@case
async def a_created_object_comes_back_as_stored_and_its_status_is_dropped(api: Api, namespace: str) -> None:
    made = await api.create(WIDGETS, widget("w") | {"status": {"state": "smuggled"}}, namespace=namespace)
    metadata = made["metadata"]
    assert (metadata["name"], metadata["namespace"], metadata["generation"]) == ("w", namespace, 1)
    assert metadata["uid"]
    assert int(metadata["resourceVersion"]) > 0
    assert metadata["creationTimestamp"].endswith("Z")
    assert "status" not in made
    assert await api.get(WIDGETS, "w", namespace=namespace) == made


@case
async def of_what_is_made_the_head_is_told(api: Api, namespace: str) -> None:
    tried = await api.make(WIDGETS, widget("w"), namespace=namespace, dry_run=True)
    assert (tried.name, tried.namespace, tried.resourceVersion) == ("w", namespace, "")
    made = await api.make(WIDGETS, widget("w"), namespace=namespace)
    stored = (await api.get(WIDGETS, "w", namespace=namespace))["metadata"]
    assert (made.name, made.namespace, made.uid) == ("w", namespace, stored["uid"])
    assert made.resourceVersion == stored["resourceVersion"]
    with pytest.raises(AlreadyExists):
        await api.make(WIDGETS, widget("w"), namespace=namespace)


@case
async def a_taken_name_is_refused(api: Api, namespace: str) -> None:
    await api.create(CONFIG_MAPS, config_map("c"), namespace=namespace)
    with pytest.raises(AlreadyExists, match='configmaps "c" already exists') as refusal:
        await api.create(CONFIG_MAPS, config_map("c"), namespace=namespace)
    assert (refusal.value.code, refusal.value.reason) == (409, "AlreadyExists")


@case
async def a_dry_run_stores_nothing_but_sees_a_taken_name(api: Api, namespace: str) -> None:
    made = await api.create(WIDGETS, widget("w"), namespace=namespace, dry_run=True)
    assert made["metadata"]["uid"]
    assert await is_absent(api, WIDGETS, "w", namespace)
    await api.create(WIDGETS, widget("w"), namespace=namespace)
    with pytest.raises(AlreadyExists):
        await api.create(WIDGETS, widget("w"), namespace=namespace, dry_run=True)


@case
async def what_is_not_there_is_not_found(api: Api, namespace: str) -> None:
    with pytest.raises(NotFound, match='"none" not found') as refusal:
        await api.get(CONFIG_MAPS, "none", namespace=namespace)
    assert (refusal.value.code, refusal.value.reason) == (404, "NotFound")
    with pytest.raises(NotFound):
        await api.json_patch(WIDGETS, "none", [{"op": "add", "path": "/spec/size", "value": 2}], namespace=namespace)
    with pytest.raises(NotFound):
        await api.list(Resource("conformance.closeknit.dev", "v1", "gadgets"))


@case
async def a_namespace_must_go_with_the_resource(api: Api, namespace: str) -> None:
    with pytest.raises(ValueError, match="configmaps is namespaced; c was asked for without a namespace"):
        await api.get(CONFIG_MAPS, "c")
    with pytest.raises(ValueError, match=f"nodes is cluster-scoped; it was asked for in namespace {namespace}"):
        await api.get(Resource("", "v1", "nodes", namespaced=False), "n", namespace=namespace)


@case
async def a_body_of_another_kind_is_invalid(api: Api, namespace: str) -> None:
    with pytest.raises(Invalid) as refusal:
        await api.create(WIDGETS, config_map("c"), namespace=namespace)
    assert refusal.value.code == 400


@case
async def generation_counts_changes_of_spec_alone(api: Api, namespace: str) -> None:
    made = await api.create(WIDGETS, widget("w"), namespace=namespace)
    label = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
    labelled = await api.json_patch(WIDGETS, "w", label, namespace=namespace)
    assert labelled["metadata"]["generation"] == 1
    head = await api.put_status(WIDGETS, "w", labelled | {"status": {"state": "Up"}}, namespace=namespace)
    stated = await api.get(WIDGETS, "w", namespace=namespace)
    assert stated["metadata"]["generation"] == 1
    assert (head.resourceVersion, head.uid) == (stated["metadata"]["resourceVersion"], made["metadata"]["uid"])
    grow = [{"op": "replace", "path": "/spec/size", "value": 2}]
    grown = await api.json_patch(WIDGETS, "w", grow, namespace=namespace)
    assert grown["metadata"]["generation"] == 2
    versions = [int(obj["metadata"]["resourceVersion"]) for obj in (made, labelled, stated, grown)]
    assert versions == sorted(set(versions))


@case
async def put_status_changes_nothing_but_status(api: Api, namespace: str) -> None:
    made = await api.create(WIDGETS, widget("w"), namespace=namespace)
    body = made | {"spec": {"size": 9}, "status": {"state": "Up"}}
    await api.put_status(WIDGETS, "w", body, namespace=namespace)
    stored = await api.get(WIDGETS, "w", namespace=namespace)
    assert (stored["spec"], stored["status"]) == ({"size": 1}, {"state": "Up"})


@case
async def put_status_is_a_compare_and_swap(api: Api, namespace: str) -> None:
    made = await api.create(WIDGETS, widget("w"), namespace=namespace)
    await api.put_status(WIDGETS, "w", made | {"status": {"state": "First"}}, namespace=namespace)
    with pytest.raises(Conflict, match="the object has been modified") as refusal:
        await api.put_status(WIDGETS, "w", made | {"status": {"state": "Second"}}, namespace=namespace)
    assert (refusal.value.code, refusal.value.reason) == (409, "Conflict")
    assert (await api.get(WIDGETS, "w", namespace=namespace))["status"] == {"state": "First"}
    with pytest.raises(ValueError, match=r"put_status of widgets.* w needs metadata.resourceVersion"):
        await api.put_status(WIDGETS, "w", widget("w"), namespace=namespace)


@case
async def a_main_write_leaves_status_alone(api: Api, namespace: str) -> None:
    made = await api.create(WIDGETS, widget("w"), namespace=namespace)
    await api.put_status(WIDGETS, "w", made | {"status": {"state": "Up"}}, namespace=namespace)
    patch = [
        {"op": "replace", "path": "/status/state", "value": "Smuggled"},
        {"op": "add", "path": "/spec/colour", "value": "red"},
    ]
    patched = await api.json_patch(WIDGETS, "w", patch, namespace=namespace)
    assert (patched["spec"], patched["status"]) == ({"size": 1, "colour": "red"}, {"state": "Up"})


@case
async def a_json_patch_of_the_status_subresource_leaves_spec_alone(api: Api, namespace: str) -> None:
    await api.create(WIDGETS, widget("w"), namespace=namespace)
    patch: list[JsonObject] = [
        {"op": "add", "path": "/status", "value": {"state": "Up"}},
        {"op": "replace", "path": "/spec/size", "value": 9},
    ]
    patched = await api.json_patch(WIDGETS, "w", patch, namespace=namespace, subresource="status")
    assert (patched["spec"], patched["status"]) == ({"size": 1}, {"state": "Up"})


@case
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


@case
async def a_write_that_changes_nothing_makes_no_version_and_no_event(api: Api, namespace: str) -> None:
    made = await api.create(WIDGETS, widget("w"), namespace=namespace)
    since = made["metadata"]["resourceVersion"]
    same = [{"op": "replace", "path": "/spec/size", "value": 1}]
    assert (await api.json_patch(WIDGETS, "w", same, namespace=namespace))["metadata"]["resourceVersion"] == since
    await api.create(WIDGETS, widget("next"), namespace=namespace)
    assert names(await watched(api, WIDGETS, namespace, since, 1)) == [("ADDED", "next")]


@case
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


@case
async def apply_without_force_does_not_take_the_fields_of_others(api: Api, namespace: str) -> None:
    body = widget("w", spec={"size": 1})
    await api.apply(WIDGETS, "w", body, field_manager="one", namespace=namespace)
    other = widget("w", spec={"size": 2})
    with pytest.raises(Conflict):
        await api.apply(WIDGETS, "w", other, field_manager="two", namespace=namespace, force=False)
    taken = await api.apply(WIDGETS, "w", other, field_manager="two", namespace=namespace)
    assert taken["spec"] == {"size": 2}


@case
async def apply_of_status_changes_status_alone_and_creates_nothing(api: Api, namespace: str) -> None:
    body = widget("w", spec={"size": 9}) | {"status": {"state": "Up"}}
    with pytest.raises(NotFound):
        await api.apply(WIDGETS, "w", body, field_manager="one", namespace=namespace, subresource="status")
    await api.create(WIDGETS, widget("w"), namespace=namespace)
    del body["spec"]
    stored = await api.apply(WIDGETS, "w", body, field_manager="one", namespace=namespace, subresource="status")
    assert (stored["spec"], stored["status"]) == ({"size": 1}, {"state": "Up"})


@case
async def delete_wants_the_uid_and_gone_already_is_success(api: Api, namespace: str) -> None:
    made = await api.create(CONFIG_MAPS, config_map("c"), namespace=namespace)
    await api.delete(CONFIG_MAPS, "c", uid="00000000-0000-4000-8000-ffffffffffff", namespace=namespace)
    assert await api.get(CONFIG_MAPS, "c", namespace=namespace) == made
    for _ in range(2):
        await api.delete(CONFIG_MAPS, "c", uid=made["metadata"]["uid"], namespace=namespace)
        assert await is_absent(api, CONFIG_MAPS, "c", namespace)


@case
async def a_finalizer_holds_a_deleted_object(api: Api, namespace: str) -> None:
    body = config_map("c", finalizers=["conformance.closeknit.dev/hold"])
    made = await api.create(CONFIG_MAPS, body, namespace=namespace)
    await api.delete(CONFIG_MAPS, "c", uid=made["metadata"]["uid"], namespace=namespace)
    held = await api.get(CONFIG_MAPS, "c", namespace=namespace)
    assert held["metadata"]["deletionTimestamp"]
    release = [{"op": "remove", "path": "/metadata/finalizers"}]
    await api.json_patch(CONFIG_MAPS, "c", release, namespace=namespace)
    assert await is_absent(api, CONFIG_MAPS, "c", namespace)


@case
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


@case
async def a_large_object_arrives_whole_and_a_larger_one_is_too_large(api: Api, namespace: str) -> None:
    since = await version_now(api, WIDGETS, namespace)
    blob = "x" * 1_400_000
    await api.create(WIDGETS, widget("w", spec={"blob": blob}), namespace=namespace)
    ((kind, obj),) = await watched(api, WIDGETS, namespace, since, 1)
    assert (kind, obj["spec"]["blob"] == blob) == ("ADDED", True)
    for size in (1_700_000, 2_400_000):
        with pytest.raises(TooLarge):
            await api.create(WIDGETS, widget("larger", spec={"blob": "x" * size}), namespace=namespace)


@case
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
