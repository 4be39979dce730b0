"""Many jobs wait, and another tenant's come and go: how much is written of the words that this changes, and how soon
his gang starts."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from closeknit.controller.writes.resources import EVENTS, RESOURCE_QUOTAS, TRAINING_JOBS
from closeknit.kube.api import Key
from faults.fault import Call
from faults.store import Store
from scenarios.manifests import CREATED, training_job
from scenarios.operated import MortalApi, Operator, add, end_job, lived, run_pods, set_status
from scenarios.story import plugin_node

WAITING = 120
WRITES = {"create", "put_status", "delete", "json_patch", "apply"}
WRITE_S = 0.01


class SlowApi(MortalApi):
    """Each write takes as long as on a busy control plane."""

    async def _do(self, call: Call, act: Callable[[], Any]) -> Any:
        if call.verb in WRITES:
            await asyncio.sleep(WRITE_S)
        return await super()._do(call, act)


@dataclass
class Site:
    """Three nodes, an operator, and how many jobs wait."""

    store: Store
    api: SlowApi
    operator: Operator

    @classmethod
    def standing(cls) -> "Site":
        store = Store(history=100_000, now=lambda: CREATED)
        for number in range(1, 4):
            for manifest in plugin_node(f"gpu-{number}"):
                add(store, manifest)
        api = SlowApi(store)
        return cls(store, api, Operator(api))

    def submit(self, name: str, namespace: str, gpus: int, node: str | None = None, **spec: Any) -> None:
        container = {"name": "trainer", "image": "x"}
        selector = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
        template = {"spec": {"containers": [container], **selector}}
        add(self.store, training_job(name, namespace=namespace, spec={"gpus": gpus, "template": template, **spec}))

    def submit_waiting(self, name: str, namespace: str = "team-q") -> None:
        self.submit(name, namespace, 8, topology={"fabric": {"preferred": "host", "patience": "9h"}})

    def job(self, name: str, namespace: str) -> dict[str, Any]:
        status: dict[str, Any] = self.store.get(TRAINING_JOBS, Key(namespace, name)).get("status", {})
        return status

    def reasons(self, namespace: str = "team-q") -> dict[str, str]:
        jobs = (each for each in self.store.objects(TRAINING_JOBS) if each["metadata"]["namespace"] == namespace)
        return {each["metadata"]["name"]: each.get("status", {}).get("pending", {}).get("reason") for each in jobs}

    def written(self) -> int:
        return sum(call.verb in WRITES for call in self.api.calls)

    async def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds * 20)):
            await asyncio.sleep(0.05)
            run_pods(self.store)

    async def starts(self, *names: str) -> float:
        """Seconds until all of these run."""
        began = asyncio.get_running_loop().time()
        while not all(self.job(name, "team-b").get("state") == "Running" for name in names):
            await self.pass_time(0.05)
            assert asyncio.get_running_loop().time() < began + 30, [self.job(name, "team-b") for name in names]
        return asyncio.get_running_loop().time() - began

    def end(self, name: str) -> None:
        """Somebody deletes it, and the garbage collector its Pods."""
        end_job(self.store, Key("team-b", name))

    def live(self, story: Callable[["Site"], Any]) -> Any:
        return lived(self.operator, lambda: story(self))


def behind_a_quota(site: Site) -> tuple[str, ...]:
    """Jobs that wait for their namespace's quota, or for GPUs while the other's job has them."""
    quota = {"metadata": {"name": "gpus"}, "spec": {"hard": {"requests.nvidia.com/gpu": "0"}}}
    site.store.create(RESOURCE_QUOTAS, {"apiVersion": "v1", "kind": "ResourceQuota", **quota}, namespace="team-q")
    told = {"requests.nvidia.com/gpu": "0"}
    set_status(site.store, RESOURCE_QUOTAS, Key("team-q", "gpus"), hard=told, used=told)
    return ("whole",)


def for_one_machine(site: Site) -> tuple[str, ...]:
    """Jobs of one machine that could be torn, or could not while the other's jobs are there."""
    for number in range(1, 4):
        site.submit(f"half-{number}", "team-b", 4, f"gpu-{number}")
    return ("part-1", "part-2")


def come(site: Site, names: tuple[str, ...], number: int) -> tuple[str, ...]:
    """The other tenant's jobs."""
    for name in names:
        if name == "whole":
            site.submit(f"{name}-{number}", "team-b", 24)
        else:
            site.submit(f"{name}-{number}", "team-b", 4, f"gpu-{name[-1]}")
    return tuple(f"{name}-{number}" for name in names)


async def settled(site: Site, wait: Callable[[Site], tuple[str, ...]]) -> tuple[tuple[str, ...], float]:
    """The other's jobs came and went once, before anybody waited: how long they took to start."""
    names = wait(site)
    await site.pass_time(3)
    quiet_s = await site.starts(*come(site, names, 0))
    for name in names:
        site.end(f"{name}-0")
    await site.pass_time(2)
    return names, quiet_s


BOTH = pytest.mark.parametrize("wait", [behind_a_quota, for_one_machine], ids=["quota", "one machine"])


@BOTH
def test_an_event_of_another_tenant_costs_twenty_writes_in_its_minute(wait: Callable[[Site], tuple[str, ...]]) -> None:
    site = Site.standing()

    async def story(site: Site) -> tuple[float, list[int], list[float]]:
        names, quiet_s = await settled(site, wait)
        for number in range(WAITING):
            site.submit_waiting(f"w{number:03d}")
        await site.pass_time(20)
        costs: list[int] = []
        took: list[float] = []
        for number in range(1, 5):
            before = site.written()
            took.append(await site.starts(*come(site, names, number)))
            await site.pass_time(6)
            costs.append(site.written() - before)
            before = site.written()
            for name in names:
                site.end(f"{name}-{number}")
            await site.pass_time(6)
            costs.append(site.written() - before)
        return quiet_s, costs, took

    quiet_s, costs, took = site.live(story)
    assert max(costs) <= 20, costs
    assert sum(costs) <= 10 * len(costs), costs
    assert max(took) <= quiet_s + 0.1, (quiet_s, took)
    assert len(set(site.reasons().values())) == 2, "some are told the one reason by now, some the other"
    events = [call.body["metadata"]["name"] for call in site.api.calls if call.verb == "create" and is_event(call)]
    assert len(events) == len(set(events)), "an Event again"


def is_event(call: Call) -> bool:
    return call.resource == EVENTS


@BOTH
def test_words_that_stay_are_told_to_all_of_them(wait: Callable[[Site], tuple[str, ...]]) -> None:
    """The other's job comes and stays: in the end each that waits is told why, and then nothing is written any more."""
    site = Site.standing()

    async def story(site: Site) -> tuple[set[str], int]:
        names, _ = await settled(site, wait)
        for number in range(WAITING):
            site.submit_waiting(f"w{number:03d}")
        await site.pass_time(20)
        await site.starts(*come(site, names, 1))
        await asyncio.sleep(420)
        before = site.written()
        await asyncio.sleep(1200)
        return set(site.reasons().values()), site.written() - before

    assert site.live(story) == ({"InsufficientGPUs"}, 0)


def test_hundreds_that_are_submitted_at_once_hear_a_reason_and_nobody_s_gang_waits_for_that() -> None:
    site = Site.standing()

    async def story(site: Site) -> tuple[float, float, set[str | None]]:
        names, quiet_s = await settled(site, behind_a_quota)
        for number in range(2 * WAITING):
            site.submit_waiting(f"w{number:03d}")
        await site.pass_time(0.1)
        took = await site.starts(*come(site, names, 1))
        await site.pass_time(2 * WAITING * 2 * WRITE_S / 4)
        return quiet_s, took, set(site.reasons().values())

    quiet_s, took, reasons = site.live(story)
    assert took <= quiet_s + 0.1
    assert None not in reasons


def test_the_one_job_of_a_namespace_does_not_wait_behind_the_many_of_another() -> None:
    """Both hear of another reason for the first time: the one at once, the many one after the other."""
    site = Site.standing()

    async def story(site: Site) -> tuple[str, int]:
        names, _ = await settled(site, for_one_machine)
        for number in range(WAITING):
            site.submit_waiting(f"w{number:03d}")
        await site.pass_time(5)
        site.submit_waiting("one", "team-z")
        await site.pass_time(5)
        await site.starts(*come(site, names, 1))
        await site.pass_time(1)
        told = list(site.reasons().values())
        return site.reasons("team-z")["one"], told.count("InsufficientGPUs")

    reason, told = site.live(story)
    assert (reason, 0 < told < 10) == ("InsufficientGPUs", True)
