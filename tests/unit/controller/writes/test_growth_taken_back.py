"""The very loop and writes of the operator, where a growth in place is refused after it was booked: killed after any
write of it, and with any reply lost. The end is that of a life without faults: the gang is as it was, nothing of the
growth is left, and it grows once the policy is gone.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from closeknit.api.names import BARRIER_CONTAINER, SIDECAR_CONTAINER
from closeknit.controller.writes.resources import PODS, RESOURCE_CLAIMS, TRAINING_JOBS
from closeknit.kube.api import JsonObject, Key, Resource
from closeknit.kube.errors import Forbidden
from faults import virtual_time
from faults.fault import Fault, LoseReply
from faults.store import Store
from scenarios.manifests import training_job
from scenarios.operated import MortalApi, Operator, add, end_job, run_pods, set_status
from scenarios.restarting_gangs import TEMPLATE
from scenarios.story import dra_node, plugin_node

JOB, OTHER = Key("team-b", "train"), Key("team-b", "other")
KEPT = ["train-a1-worker-00000", "train-a1-worker-00001"]
ADDED = ["train-a1-worker-00002-r1", "train-a1-worker-00003-r1"]
GPUS = 2  # of a node
PATIENCE_S = 1800.0
KINDS = pytest.mark.parametrize("node", [plugin_node, dra_node], ids=["plugin", "DRA"])
WORDS = "no Pod of the night"


class Site:
    """A store, everybody but the operator, and a policy that lets dry runs pass."""

    def __init__(self, node: Callable[..., list[dict[str, Any]]]) -> None:
        self.store, self.refused = Store(), set[str]()
        self.run = 0
        """The newest run that the gang's Pods tell of."""
        for number in range(1, 5):
            for manifest in node(f"gpu-{number}", gpus=GPUS):
                if manifest["kind"] == "Node":
                    manifest["status"]["declaredFeatures"] = ["RestartAllContainersOnContainerExits"]
                add(self.store, manifest)
        add(self.store, training_job("other", spec={"gpus": 2 * GPUS}))

    def api(self, *faults: Fault, dies_after: int | None = None) -> "PolicedApi":
        return PolicedApi(self, faults, dies_after)

    def names(self, resource: Resource) -> list[str]:
        found = (each["metadata"]["name"] for each in self.store.objects(resource))
        return sorted(name for name in found if name.startswith("train-"))

    def status(self) -> JsonObject:
        status: JsonObject = self.store.get(TRAINING_JOBS, JOB).get("status", {})
        return status

    def is_running(self) -> bool:
        return self.status().get("state") == "Running"

    def kubelets(self) -> None:
        run_pods(self.store)
        for name in self.names(PODS):
            if name not in KEPT and not self.run:
                continue
            said = {"terminated": {"exitCode": 0, "message": json.dumps({"run": self.run}), "finishedAt": ""}}
            told = [{"name": BARRIER_CONTAINER, "state": said}]
            if self.store.get(PODS, Key("team-b", name))["status"].get("initContainerStatuses") != told:
                alive = [{"name": each, "state": {"running": {}}} for each in ("trainer", SIDECAR_CONTAINER)]
                key = Key("team-b", name)
                set_status(self.store, PODS, key, initContainerStatuses=told, containerStatuses=alive)


class PolicedApi(MortalApi):
    """Refuses Pods that pass on trial."""

    def __init__(self, site: Site, faults: tuple[Fault, ...], dies_after: int | None) -> None:
        super().__init__(site.store, faults, dies_after=dies_after)
        self._refused = site.refused

    async def create(
        self, resource: Resource, body: JsonObject, *, namespace: str | None = None, dry_run: bool = False
    ) -> JsonObject:
        """See `Api.create`."""
        if body["metadata"].get("name") in self._refused and not dry_run and resource == PODS:
            await asyncio.sleep(0)
            raise Forbidden(WORDS, code=403, reason="Forbidden")
        return await super().create(resource, body, namespace=namespace, dry_run=dry_run)


async def until(site: Site, condition: Callable[[], bool], what: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(1)
            site.kubelets()
    assert condition(), what


async def operate(*apis: MortalApi) -> None:
    for api in apis:
        await Operator(api, sidecar_image="agent:1").run()


def told(site: Site) -> Any:
    """All that is stored, without moments and lengths of time."""
    status = site.status()
    conditions = [{**each, "lastTransitionTime": ""} for each in status["conditions"]]
    attempts = [{**each, "ended": "", "ran": "", "phases": ""} for each in status.get("attempts", [])]
    room = {**status["placement"].get("room", {}), "since": ""}
    times = {"epoch": 0, "startTime": "", "cost": [*status["cost"]["lostGPUSeconds"]], "message": ""}
    placed = {**status["placement"], "room": room}
    children = (site.names(PODS), site.names(RESOURCE_CLAIMS))
    return {**status, "conditions": conditions, "attempts": attempts, "placement": placed, **times}, children


async def a_growth(
    node: Callable[..., list[dict[str, Any]]], *faults: Fault, dies_after: int | None = None
) -> tuple[Any, Any, int]:
    """What is stored once the growth is taken back, and once it has come about, and how many writes it took the
    first operator."""
    site = Site(node)
    first = asyncio.create_task(operate(site.api()))
    await until(site, lambda: len(site.store.objects(PODS)) == 2, "the other job runs")
    spec = {"gpus": 4 * GPUS, "elastic": {"minGPUs": GPUS}, "template": TEMPLATE, "restart": {"limit": 2}}
    add(site.store, training_job(spec=spec))
    await until(site, site.is_running, "it runs with half of its GPUs")
    end_job(site.store, OTHER)
    await until(site, lambda: "room" in site.status()["placement"], "there is room")
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    site.refused.add(ADDED[1])
    mortal = site.api(*faults, dies_after=dies_after)
    others = asyncio.create_task(operate(mortal, site.api(), site.api()))
    try:
        await until(site, lambda: "refused" in site.status()["placement"].get("room", {}), "it is refused")
        await asyncio.sleep(100)
        site.kubelets()
        refused, writes = told(site), mortal.written
        site.refused.clear()
        await until(site, lambda: site.names(PODS) == [*KEPT, *ADDED], "it grows")
        site.run = 1
        await until(site, lambda: site.is_running() and "gpus" not in site.status()["placement"], "all of it runs")
        await asyncio.sleep(100)
        return refused, told(site), writes
    finally:
        others.cancel()
        await asyncio.gather(others, return_exceptions=True)


WRITES = {plugin_node: 6, dra_node: 7}  # of one growth that is taken back, with its Event
STEPS = pytest.mark.parametrize(
    ("node", "k"),
    [
        pytest.param(node, k, id=f"{name}-{k}")
        for node, name in ((plugin_node, "plugin"), (dra_node, "DRA"))
        for k in range(1, WRITES[node] + 1)
    ],
)


@pytest.fixture(scope="module")
def faultless() -> dict[Any, Any]:
    lives = {}
    for node in (plugin_node, dra_node):
        refused, grown, writes = virtual_time.run(a_growth(node))
        assert writes == WRITES[node]
        lives[node] = refused, grown
    return lives


@KINDS
def test_a_growth_without_faults(node: Any, faultless: dict[Any, Any]) -> None:
    (refused, children), (grown, _) = faultless[node]
    placed = refused["placement"]
    assert (refused["state"], refused["attempts"], refused["restarts"], placed["gpus"]) == ("Running", [], 0, 2 * GPUS)
    assert WORDS in placed["room"]["refused"]
    assert children == (KEPT, KEPT if node is dra_node else [])
    assert (grown["state"], grown["attempt"], grown["restarts"], grown["placement"]["run"]) == ("Running", 1, 1, 1)
    assert [(each["reason"], each["inPlace"]) for each in grown["attempts"]] == [("Grown", True)]


@STEPS
def test_killed_after_the_kth_write_it_ends_the_same(node: Any, k: int, faultless: dict[Any, Any]) -> None:
    refused, grown, _ = virtual_time.run(a_growth(node, dies_after=k))
    assert (refused, grown) == faultless[node]


@STEPS
def test_when_the_kth_reply_is_lost_it_ends_the_same(node: Any, k: int, faultless: dict[Any, Any]) -> None:
    refused, grown, _ = virtual_time.run(a_growth(node, Fault(LoseReply(), "write", nth=k)))
    assert (refused, grown) == faultless[node]
