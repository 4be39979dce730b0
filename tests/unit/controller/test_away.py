"""The operator is away for a day: whatever it was at, no Pod is touched when it comes back, and it catches up."""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from closeknit.controller.writes.resources import PODS, TRAINING_JOBS
from closeknit.kube.api import JsonObject, Key
from faults import virtual_time
from faults.store import Store
from scenarios.manifests import training_job
from scenarios.operated import BEGIN, NODE_TOPOLOGIES, MortalApi, add, operate, run_pods, set_status
from scenarios.story import dra_node, plugin_node

DAY_S = 24 * 3600.0
JOB = Key("team-b", "train")
BOTH = pytest.mark.parametrize("node", [plugin_node, dra_node], ids=["plugin", "DRA"])


class Site:
    """Two nodes of two GPUs, and the hands of everybody but the operator."""

    def __init__(self, node: Any) -> None:
        self.store = Store(history=100_000, now=self._stamp)
        for manifest in [*node("gpu-1", gpus=2), *node("gpu-2", gpus=2)]:
            add(self.store, manifest)

    def status(self, name: str = "train") -> JsonObject:
        found: JsonObject = self.store.get(TRAINING_JOBS, Key("team-b", name)).get("status", {})
        return found

    async def pass_time(self, seconds: float) -> None:
        """Kubelets run what they can, and agents give signs of life."""
        time = asyncio.get_running_loop().time
        until = time() + seconds
        while time() < until:
            run_pods(self.store)
            for topology in self.store.objects(NODE_TOPOLOGIES):
                set_status(
                    self.store, NODE_TOPOLOGIES, Key("", topology["metadata"]["name"]), heartbeatTime=self._stamp()
                )
            await asyncio.sleep(min(600.0, until - time()))

    async def operate_for(self, seconds: float, dies_after: int | None = None) -> int:
        """Until its death, or for so long. The writes that it sent."""
        api = MortalApi(self.store, dies_after=dies_after)
        running = asyncio.create_task(operate(api))
        try:
            for _ in range(int(seconds)):
                run_pods(self.store)
                await asyncio.wait({running}, timeout=1.0)
                if running.done():
                    break
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        return api.written

    def pods(self) -> list[JsonObject]:
        return self.store.objects(PODS)

    def made(self) -> Counter[str]:
        return Counter(
            write.key.name for write in self.store.writes if (write.verb, write.resource) == ("create", PODS)
        )

    def _stamp(self) -> str:
        try:
            time_s = asyncio.get_running_loop().time()
        except RuntimeError:
            time_s = 0.0
        return (BEGIN + timedelta(seconds=time_s)).strftime("%Y-%m-%dT%H:%M:%SZ")


@BOTH
def test_a_gang_that_runs_is_left_alone(node: Any) -> None:
    async def story() -> None:
        site = Site(node)
        add(site.store, training_job("train", spec={"gpus": 4}))
        await site.operate_for(60)
        assert site.status()["state"] == "Running"
        pods, status = site.pods(), site.status()
        await site.pass_time(DAY_S)
        assert await site.operate_for(600) == 0
        assert (site.pods(), site.status()) == (pods, status)

    virtual_time.run(story())


@BOTH
@pytest.mark.parametrize("k", (1, 3, 4, 6))
def test_a_gang_that_was_being_made_is_made_to_its_end(node: Any, k: int) -> None:
    """It is away after the k-th write of the gang's life."""

    async def story() -> None:
        site = Site(node)
        add(site.store, training_job("train", spec={"gpus": 4}))
        await site.operate_for(60, dies_after=k)
        there = {pod["metadata"]["uid"] for pod in site.pods()}
        await site.pass_time(DAY_S)
        await site.operate_for(120)
        status = site.status()
        assert (status["state"], status["attempt"]) == ("Running", 1)
        assert there <= {pod["metadata"]["uid"] for pod in site.pods()}, "a Pod was touched"
        assert set(site.made().values()) == {1}

    virtual_time.run(story())


def test_what_happened_meanwhile_is_caught_up_with() -> None:
    """One gang ended, another one's job was deleted, and a third was submitted."""

    async def story() -> None:
        site = Site(plugin_node)
        for name in ("ends", "goes"):
            add(site.store, training_job(name, spec={"gpus": 2}))
        await site.operate_for(60)
        assert {site.status(name)["state"] for name in ("ends", "goes")} == {"Running"}
        set_status(site.store, PODS, Key("team-b", "ends-a1-worker-00000"), phase="Succeeded")
        site.store.delete(TRAINING_JOBS, Key("team-b", "goes"))
        add(site.store, training_job("comes", spec={"gpus": 4}))
        await site.pass_time(DAY_S)
        await site.operate_for(120)
        assert (site.status("ends")["state"], site.status("comes")["state"]) == ("Succeeded", "Running")
        assert {name.partition("-")[0] for name, _ in site.made().items()} == {"ends", "goes", "comes"}
        assert set(site.made().values()) == {1}

    virtual_time.run(story())
