"""A key pair is made where it is sent, and what has its name already is not read."""

from base64 import b64decode
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from closeknit.controller.metrics import Metrics
from closeknit.controller.writes.resources import BY_KIND, TRAINING_JOBS
from closeknit.controller.writes.ssh_key_pair import with_key_pair
from closeknit.controller.writes.write_slots import WriteSlots
from closeknit.controller.writes.writes import Writes
from closeknit.kube.api import JsonObject, Key, Resource
from closeknit.lifecycle.writes.plan import Plan
from closeknit.lifecycle.writes.results import Judgement, Result, Unseen, judged
from faults import virtual_time
from faults.memory_api import MemoryApi
from faults.store import Store
from scenarios.manifests import training_job
from scenarios.story import Story, plugin_node

SECRETS = BY_KIND["Secret"]


class NoReader(MemoryApi):
    """An API server that ends the test where a Secret is read."""

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> JsonObject:
        assert resource != SECRETS
        return await super().get(resource, name, namespace=namespace)


def booked() -> tuple[Plan, Store]:
    """The Plan that books an MPI job on two nodes, and the store that it is for."""
    store = Store()
    body = training_job(spec={"gpus": 16, "framework": "MPI"})
    body["metadata"] = {key: body["metadata"][key] for key in ("name", "namespace")}
    job = store.create(TRAINING_JOBS, body, namespace="team-b")
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"), job)
    story.objects[("TrainingJob", "team-b", "train")] = job
    (plan,) = story.plans()
    return plan, store


def secret_of(plan: Plan) -> dict[str, Any]:
    (secret,) = (each.manifest for each in plan.opening if each.manifest["kind"] == "Secret")
    return secret


def write(plan: Plan, store: Store) -> Sequence[Result]:
    writes = Writes(
        WriteSlots(NoReader(store, ()), Metrics().count_write), lambda: datetime(2026, 11, 22, tzinfo=UTC), "test"
    )
    return virtual_time.run(writes.apply(plan))


def test_the_stored_secret_has_a_key_pair_that_fits_and_the_plan_has_none() -> None:
    plan, store = booked()
    secret = secret_of(plan)
    write(plan, store)
    assert "data" not in secret
    stored = store.get(SECRETS, Key("team-b", secret["metadata"]["name"]))
    private, public = (b64decode(stored["data"][f"ssh-{half}key"]) for half in ("private", "public"))
    assert load_ssh_private_key(private, None).public_key() == load_ssh_public_key(public)
    assert public.endswith(b"\n")


def test_no_two_are_alike() -> None:
    assert with_key_pair({})["data"] != with_key_pair({})["data"]


def test_one_that_is_there_is_left_as_it_is() -> None:
    plan, store = booked()
    secret = secret_of(plan)
    before = store.create(SECRETS, {**secret, "data": {}}, namespace="team-b")
    results = write(plan, store)
    assert [judged(each, plan.uid) for each in results if isinstance(each, Unseen)] == [Judgement.DONE]
    assert {judged(each, plan.uid) for each in results} == {Judgement.DONE}
    assert store.get(SECRETS, Key("team-b", secret["metadata"]["name"])) == before


def test_the_files_of_an_attempt_go_with_its_service() -> None:
    plan, store = booked()
    write(plan, store)
    service = store.get(BY_KIND["Service"], Key("team-b", "train-a1"))
    (config,) = store.objects(BY_KIND["ConfigMap"])
    (owner,) = config["metadata"]["ownerReferences"]
    assert owner == {
        "apiVersion": "v1",
        "kind": "Service",
        "name": "train-a1",
        "uid": service["metadata"]["uid"],
        "controller": True,
    }


def test_files_that_a_service_of_before_owned_are_waited_for() -> None:
    plan, store = booked()
    (config,) = (manifest for each in plan.opening for manifest in each.owns if manifest["kind"] == "ConfigMap")
    left = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "of-before"}, "spec": {}}
    uid = store.create(BY_KIND["Service"], left, namespace="team-b")["metadata"]["uid"]  # else it is collected at once
    old = {"apiVersion": "v1", "kind": "Service", "name": "train-a1", "uid": uid, "controller": True}
    metadata = {**config["metadata"], "ownerReferences": [old]}
    store.create(BY_KIND["ConfigMap"], {**config, "metadata": metadata}, namespace="team-b")
    results = write(plan, store)
    assert Judgement.AGAIN in {judged(each, plan.uid) for each in results}
    assert store.objects(BY_KIND["Pod"]) == []
