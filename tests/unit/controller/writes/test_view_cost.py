"""What the booking of a gang costs the operator, told in views and not in time: what the decision has worked out of its
nodes is what the operator sees of them from then on."""

import asyncio

import pytest

from closeknit.controller.writes.resources import PODS, TRAINING_JOBS
from closeknit.kube.errors import TooManyRequests
from faults import virtual_time
from faults.fault import Delay, Fault, Refuse
from faults.store import Store
from scenarios.manifests import training_job
from scenarios.operated import MortalApi, Operator, add
from scenarios.story import plugin_node
from scenarios.views import derived

NODES = ("gpu-1", "gpu-2", "gpu-3")
LATE_S = 5.0


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return derived(monkeypatch)


def booked(views: list[str], *faults: Fault, jobs: int = 1) -> tuple[Store, Operator]:
    """Jobs that need all nodes come to an operator at rest, and nobody binds their Pods. `views` are those from then on
    until the first Pod is made."""
    store = Store()
    for name in NODES:
        for manifest in plugin_node(name):
            add(store, manifest)
    operator = Operator(MortalApi(store, [*faults, Fault(Delay(LATE_S), "create", PODS)]))

    async def story() -> None:
        running = asyncio.create_task(operator.run())
        await asyncio.sleep(1)
        views.clear()
        for number in range(jobs):
            add(store, training_job(f"train-{number}", spec={"gpus": 8 * len(NODES) // jobs}))
        await asyncio.sleep(LATE_S)
        assert not store.objects(PODS)
        until_then = list(views)
        await asyncio.sleep(4 * LATE_S)
        views[:] = until_then
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    virtual_time.run(story())
    assert len(store.objects(PODS)) == len(NODES)
    return store, operator


@pytest.mark.parametrize("jobs", [1, 3], ids=["one gang", "three jobs"])
def test_a_booking_has_each_of_its_nodes_judged_once(views: list[str], jobs: int) -> None:
    _, operator = booked(views, jobs=jobs)
    assert sorted(views) == sorted(NODES)
    assert all(view.free == () for view in operator.watched.cluster.nodes.values())


def test_what_is_shown_of_a_job_is_what_is_stored_of_it(views: list[str]) -> None:
    busy = Fault(Refuse(TooManyRequests("busy", code=429)), "put_status", TRAINING_JOBS, nth=1)
    store, operator = booked(views, busy)
    (job,) = operator.watched.cluster.jobs.values()
    (stored,) = store.objects(TRAINING_JOBS)
    assert job.status.wire() == stored["status"]
    assert job.metadata.resource_version == stored["metadata"]["resourceVersion"]
