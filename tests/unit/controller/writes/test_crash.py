"""The very loop and writes of the operator over the in-memory API server: killed after any write, replies lost, errors.

Rows R1, R2 and a part of R6 of the fault matrix. The oracle is a life without faults: the same end, and the same Pods
created once each. Three rules are checked after every change of the store: no Pod is of an attempt that its job's
status does not have yet, none is there together with one of another attempt that may still hold its GPUs, and no claim
belongs to another Pod than the one of its name.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from closeknit.controller.writes.resources import PODS, RESOURCE_CLAIMS, SERVICES, TRAINING_JOBS
from closeknit.controller.writes.writes import Writes
from closeknit.kube.api import JsonObject, Key, Resource
from closeknit.kube.errors import ApiError, Conflict, TooManyRequests, Unavailable
from closeknit.lifecycle.writes.plan import Plan
from closeknit.lifecycle.writes.results import Result
from faults import virtual_time
from faults.fault import WRITES as WRITE_VERBS
from faults.fault import Fault, HoldEvents, LoseReply, Refuse
from faults.store import Store
from scenarios.manifests import training_job
from scenarios.operated import MortalApi, add, operate, pinned, run_pods, set_status
from scenarios.story import dra_node, plugin_node

JOB = Key("team-b", "train")
PATIENCE_S = 900.0  # virtual seconds: longer than any pause before a retry
GPUS = 2  # of a node: each operator that starts learns its machine again
KINDS = pytest.mark.parametrize("node", [plugin_node, dra_node], ids=["plugin", "DRA"])


class World:
    """A store, and the hands of everybody but the operator."""

    def __init__(self, node: Callable[..., list[dict[str, Any]]]) -> None:
        self.store = Store()
        for manifest in [*node("gpu-1", gpus=GPUS), *node("gpu-2", gpus=GPUS), training_job(spec={"gpus": 2 * GPUS})]:
            add(self.store, manifest)
        self.store.listeners.append(self._check)

    def objects(self, resource: Resource) -> dict[str, JsonObject]:
        return {each["metadata"]["name"]: each for each in self.store.objects(resource)}

    def status(self) -> JsonObject:
        status: JsonObject = self.store.get(TRAINING_JOBS, JOB).get("status", {})
        return status

    def _check(self) -> None:
        pods = self.objects(PODS)
        job = self.objects(TRAINING_JOBS).get(JOB.name)
        if job is None:
            return
        attempt = job.get("status", {}).get("attempt", 0)
        live: set[tuple[str, int]] = set()
        for name, pod in pods.items():
            number = int(pod["metadata"]["labels"]["closeknit.dev/attempt"])
            assert number <= attempt, f"{name} is there before its attempt is stored"
            if pod["status"]["phase"] in {"Pending", "Running"}:
                live.add((pinned(pod), number))
        assert len(live) == len({node for node, _ in live}), f"Pods of two attempts are on one node: {sorted(live)}"
        for name, claim in self.objects(RESOURCE_CLAIMS).items():
            if name in pods:
                assert claim["metadata"]["ownerReferences"][0]["uid"] == pods[name]["metadata"]["uid"]


async def keep_operating(apis: Iterable[MortalApi]) -> None:
    for api in apis:
        await operate(api)


async def until(world: World, condition: Callable[[], bool], what: str) -> None:
    """Lets virtual time pass."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.05)
            run_pods(world.store)
    assert condition(), what


async def a_life(node: Callable[..., list[dict[str, Any]]], first: Callable[[Store], MortalApi]) -> tuple[Any, World]:
    """Submitted, running, a child deleted, running again, succeeded, deleted. Gives the last status, and the world."""
    world = World(node)
    operators = (first(world.store) if number == 0 else MortalApi(world.store) for number in range(3))
    operator = asyncio.create_task(keep_operating(operators))
    try:
        await until(world, lambda: world.status().get("state") == "Running", "runs")
        world.store.delete(PODS, Key(JOB.namespace, "train-a1-worker-00000"))
        await until(
            world,
            lambda: world.status().get("state") == "Running" and world.status()["attempt"] == 2,
            "runs again",
        )
        for name in world.objects(PODS):
            set_status(world.store, PODS, Key(JOB.namespace, name), phase="Succeeded")
        await until(world, lambda: world.status().get("state") == "Succeeded", "succeeds")
        await asyncio.sleep(400)  # longer than a resync
        last = world.status()
        world.store.delete(TRAINING_JOBS, JOB)
        await asyncio.sleep(400)
        assert not operator.done(), "the operator ended by itself"
    finally:
        operator.cancel()
        await asyncio.gather(operator, return_exceptions=True)
    return last, world


def live(node: Callable[..., list[dict[str, Any]]], first: Callable[[Store], MortalApi]) -> tuple[Any, World]:
    return virtual_time.run(a_life(node, first))


def told(status: JsonObject) -> Any:
    """A status without moments, lengths of time and epoch, which restarts of the operator may change."""
    conditions = [{**each, "lastTransitionTime": ""} for each in status["conditions"]]
    attempts = [{**each, "ended": "", "ran": "", "phases": [*each.get("phases", ())]} for each in status["attempts"]]
    times = {"epoch": 0, "startTime": "", "cost": [*status["cost"]["lostGPUSeconds"]]}
    return {**status, "conditions": conditions, "attempts": attempts, **times}


def written(world: World) -> Counter[str]:
    """How often each child was created by a call."""
    return Counter(
        f"{write.resource.plural} {write.key.name}"
        for write in world.store.writes
        if write.verb == "create" and write.resource in {PODS, SERVICES, RESOURCE_CLAIMS}
    )


WRITES = {plugin_node: 17, dra_node: 21}  # of one life: each of them is hit once by every fault
STEPS = pytest.mark.parametrize(
    ("node", "k"),
    [
        pytest.param(node, k, id=f"{name}-{k}")
        for node, name in ((plugin_node, "plugin"), (dra_node, "DRA"))
        for k in range(1, WRITES[node] + 1)
    ],
)
Lives = dict[Any, tuple[Any, Counter[str]]]


@pytest.fixture(scope="module")
def faultless() -> Lives:
    lives = {}
    for node in (plugin_node, dra_node):
        apis: list[MortalApi] = []

        def first(store: Store, apis: list[MortalApi] = apis) -> MortalApi:
            apis.append(MortalApi(store))
            return apis[-1]

        status, world = live(node, first)
        assert apis[0].written == WRITES[node]
        lives[node] = (told(status), written(world))
    return lives


@KINDS
def test_a_life_without_faults(node: Any, faultless: Lives) -> None:
    status, made = faultless[node]
    assert (status["state"], status["attempt"], status["restarts"]) == ("Succeeded", 2, 1)
    pods = {f"pods train-a{attempt}-worker-0000{index}": 1 for attempt in (1, 2) for index in (0, 1)}
    services = {"services train-a1": 1, "services train-a2": 1}
    claims = {name.replace("pods", "resourceclaims"): 1 for name in pods} if node is dra_node else {}
    assert made == {**pods, **services, **claims}


@STEPS
def test_killed_after_the_kth_write_it_ends_the_same(node: Any, k: int, faultless: Lives) -> None:
    status, world = live(node, lambda store: MortalApi(store, dies_after=k))
    assert (told(status), written(world)) == faultless[node]
    for resource in (PODS, SERVICES, RESOURCE_CLAIMS):
        assert world.objects(resource) == {}


@STEPS
def test_when_the_kth_reply_is_lost_it_ends_the_same(node: Any, k: int, faultless: Lives) -> None:
    status, world = live(node, lambda store: MortalApi(store, [Fault(LoseReply(), "write", nth=k)]))
    assert (told(status), written(world)) == faultless[node]


@STEPS
@pytest.mark.parametrize(
    "error",
    [
        Unavailable("the server is currently unable to handle the request", code=503),
        TooManyRequests("please wait", code=429, retry_after_s=3),
        Conflict("the object has been modified", code=409, reason="Conflict"),
    ],
    ids=lambda error: str(error.code),
)
def test_when_the_kth_write_is_not_taken_it_ends_the_same(node: Any, k: int, error: ApiError, faultless: Lives) -> None:
    status, world = live(node, lambda store: MortalApi(store, [Fault(Refuse(error), "write", nth=k)]))
    assert (told(status), written(world)) == faultless[node]


@KINDS
def test_a_mistake_of_ours_in_a_write_leaves_the_job_alone_for_a_while_and_not_for_ever(
    node: Any, faultless: Lives, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    apply, mistakes = Writes.apply, [KeyError("metadata")]

    async def mistaken(self: Writes, plan: Plan) -> Sequence[Result]:
        results = await apply(self, plan)
        if mistakes:
            raise mistakes.pop()
        return results

    monkeypatch.setattr(Writes, "apply", mistaken)
    status, world = live(node, MortalApi)
    assert (told(status), written(world)) == faultless[node]
    assert [record.getMessage() for record in caplog.records if record.exc_info] == ["a mistake of ours about one job"]


@pytest.mark.parametrize("where", ["closeknit.scheduling.decision.follow", "write"])
def test_a_mistake_of_ours_that_lasts_is_told_and_met_once_a_minute(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[float] = []
    world = World(plugin_node)
    apply = Writes.apply

    def mistaken(*_: object, **__: object) -> Any:
        tries.append(asyncio.get_event_loop().time() if where == "write" else 0.0)
        raise KeyError("metadata")

    async def mistaken_write(self: Writes, plan: Plan) -> Sequence[Result]:
        return await apply(self, plan) if plan.error is not None else mistaken()

    async def ten_minutes() -> None:
        operator = asyncio.create_task(operate(MortalApi(world.store)))
        await asyncio.sleep(600)
        operator.cancel()
        await asyncio.gather(operator, return_exceptions=True)

    if where == "write":
        monkeypatch.setattr(Writes, "apply", mistaken_write)
    else:
        monkeypatch.setattr(where, mistaken)
    virtual_time.run(ten_minutes())
    assert world.status()["pending"]["reason"] == "InternalError"
    assert "(KeyError: 'metadata')" in world.status()["pending"]["message"]
    assert 9 <= len(tries) <= 12


@KINDS
@pytest.mark.parametrize("late", [TRAINING_JOBS, PODS, RESOURCE_CLAIMS], ids=str)
def test_what_is_seen_late_is_not_written_again(node: Any, late: Resource, faultless: Lives) -> None:
    apis: list[MortalApi] = []

    def first(store: Store) -> MortalApi:
        apis.append(MortalApi(store, [Fault(HoldEvents(2.0), "watch", late)]))
        return apis[-1]

    status, world = live(node, first)
    assert (told(status), written(world)) == faultless[node]
    sent = [call for call in apis[0].calls if call.verb in WRITE_VERBS]
    # The ends of two Pods that are seen one after the other are stored one after the other.
    assert len(sent) <= WRITES[node] + (late is PODS)
