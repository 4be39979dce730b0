"""A job with files and keys on the very loop and writes of the operator: whatever its start meets, it gets both."""

import asyncio
from collections.abc import Callable

import pytest

from closeknit.controller.writes.resources import BY_KIND, PODS, TRAINING_JOBS
from closeknit.kube.api import Key, Resource
from closeknit.kube.errors import Unavailable
from faults import virtual_time
from faults.fault import Fault, LoseReply, Refuse
from faults.store import Store
from scenarios.manifests import training_job
from scenarios.operated import MortalApi, add, operate, run_pods
from scenarios.story import plugin_node

JOB = Key("team-b", "train")
OTHERS = ("Service", "ConfigMap", "Secret")
WRITES = 6  # of a start: the status, a Service with its ConfigMap, a Secret, two Pods
BUSY = Unavailable("the server is currently unable to handle the request", code=503)


def started(first: Callable[[Store], MortalApi]) -> Store:
    """An MPI job on two nodes that was submitted to the first operator, or to one after it, and runs."""
    store = Store()
    for manifest in (*plugin_node("gpu-1"), *plugin_node("gpu-2")):
        add(store, manifest)
    add(store, training_job(spec={"gpus": 16, "framework": "MPI"}))

    async def story() -> None:
        async def operators() -> None:
            await operate(first(store))
            await operate(MortalApi(store))

        running = asyncio.create_task(operators())
        try:
            async with asyncio.timeout(120):
                while store.get(TRAINING_JOBS, JOB).get("status", {}).get("state") != "Running":
                    await asyncio.sleep(0.05)
                    run_pods(store)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    virtual_time.run(story())
    return store


def assert_whole(store: Store) -> None:
    assert len(store.objects(PODS)) == 2
    for kind in OTHERS:
        (made,) = store.objects(BY_KIND[kind])
        volumes = [volume for pod in store.objects(PODS) for volume in pod["spec"]["volumes"]]
        named = [each["configMap"]["name"] for each in volumes if "configMap" in each]
        named += [each["secret"]["secretName"] for each in volumes if "secret" in each]
        assert kind == "Service" or named.count(made["metadata"]["name"]) == 2


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("fault", [Refuse(BUSY), LoseReply()], ids=["not taken", "its answer lost"])
def test_what_is_not_made_at_first_is_made_later(kind: str, fault: Refuse | LoseReply) -> None:
    resource: Resource = BY_KIND[kind]
    assert_whole(started(lambda store: MortalApi(store, [Fault(fault, "create", resource, nth=1)])))


@pytest.mark.parametrize("k", range(1, WRITES + 1))
def test_killed_after_the_kth_write_its_pods_have_both(k: int) -> None:
    assert_whole(started(lambda store: MortalApi(store, dies_after=k)))
