"""Several jobs at once: who gets the GPUs while somebody's write is under way, late, refused or unanswered."""

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from closeknit.api.names import ATTEMPT_LABEL, INDEX_LABEL, JOB_LABEL, ROLE_LABEL
from closeknit.controller.writes.resources import PODS, TRAINING_JOBS
from closeknit.kube.api import JsonObject, Key
from closeknit.kube.errors import ApiError, Conflict, Forbidden, Invalid, TooManyRequests, Unavailable
from closeknit.kube.object_identity import Head
from faults import virtual_time
from faults.fault import Call, Delay, Fault, HoldEvents, LoseReply, Refuse
from faults.store import Store
from scenarios.manifests import pod, priority_class, training_job
from scenarios.operated import NODE_TOPOLOGIES, MortalApi, Operator, add, run_pods, set_status
from scenarios.story import dra_node, plugin_node

Node = Callable[[str], list[dict[str, Any]]]
KINDS = pytest.mark.parametrize("node", [plugin_node, dra_node], ids=["plugin", "DRA"])


class Bed:
    """A store with nodes, one operator over it, and a switch for its faults."""

    def __init__(self, node: Node, nodes: int, faults: Iterable[Fault] = (), api: type[MortalApi] = MortalApi) -> None:
        self.store = Store(history=100_000)
        for number in range(1, nodes + 1):
            for manifest in node(f"gpu-{number}"):
                add(self.store, manifest)
        self.is_armed = False
        self.api = api(self.store, [self._armed(fault) for fault in faults])
        self.operator = Operator(self.api)

    def _armed(self, fault: Fault) -> Fault:
        return Fault(
            fault.effect, fault.verb, fault.resource, fault.nth, lambda call: self.is_armed and fault.when(call)
        )

    def submit(self, name: str, gpus: int, priority: str | None = None) -> None:
        spec = {"gpus": gpus, **({"priorityClassName": priority} if priority else {})}
        add(self.store, training_job(name, spec=spec))

    def end(self, job: str) -> None:
        """Its one Pod succeeds."""
        set_status(self.store, PODS, Key("team-b", f"{job}-a1-worker-00000"), phase="Succeeded")

    async def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            await asyncio.sleep(0.1)
            run_pods(self.store)

    def jobs(self) -> dict[str, JsonObject]:
        return {each["metadata"]["name"]: each for each in self.store.objects(TRAINING_JOBS)}

    def state(self, job: str) -> str:
        return str(self.jobs()[job].get("status", {}).get("state"))

    def booked(self, job: str) -> set[tuple[str, int]]:
        status = self.jobs()[job].get("status", {})
        if status.get("state") in {"Succeeded", "Failed", "Suspended"}:
            return set()
        return {(node["name"], gpu) for node in status.get("placement", {}).get("nodes", ()) for gpu in node["gpus"]}

    def live(self, story: Callable[["Bed"], Any]) -> Any:
        """What the story gives, told while the operator runs."""

        async def told() -> Any:
            operator = asyncio.create_task(self.operator.run())
            try:
                result = await story(self)
                assert not operator.done(), "the operator ended by itself"
                return result
            finally:
                operator.cancel()
                await asyncio.gather(operator, return_exceptions=True)

        return virtual_time.run(told())


def is_booking_of(name: str) -> Callable[[Call], bool]:
    return lambda call: call.key.name == name and "placement" in call.body["status"]


@KINDS
@pytest.mark.parametrize("comes_another", [False, True], ids=["no other node", "a node that comes meanwhile"])
@pytest.mark.parametrize("late_s", [0.05, 0.3, 2.0])
def test_a_booking_whose_answer_was_lost_counts_until_a_read_has_told(
    node: Node, late_s: float, comes_another: bool
) -> None:
    bed = Bed(
        node,
        1,
        [
            Fault(LoseReply(), "put_status", when=is_booking_of("a"), nth=1),
            Fault(HoldEvents(late_s), "watch", TRAINING_JOBS),
        ],
    )
    doubles: list[set[tuple[str, int]]] = []
    bed.is_armed = True
    for name in ("a", "b"):
        bed.submit(name, 8)
    bed.store.listeners.append(lambda: doubles.append(bed.booked("a") & bed.booked("b")))

    async def story(bed: Bed) -> None:
        await asyncio.sleep(0.03)  # it is stored by now, and nobody knows
        for manifest in node("gpu-0") if comes_another else ():
            add(bed.store, manifest)  # which comes first of two that are alike
        await bed.pass_time(10)

    bed.live(story)
    assert [double for double in doubles if double] == []
    assert (bed.state("a"), bed.state("b")) == ("Running", "Running" if comes_another else "Queued")
    assert {gpu for gpu, _ in bed.booked("a")} == {"gpu-1"}


@pytest.mark.parametrize("late_s", [0.3, 2.0])
def test_a_pod_whose_answer_was_lost_is_waited_for_before_others_get_its_gpus(late_s: float) -> None:
    """A higher job comes while nothing tells that the Pod is there: it gets what the Pod has once that has gone."""
    bed = Bed(plugin_node, 1, [Fault(LoseReply(), "create", PODS, nth=1), Fault(HoldEvents(late_s), "watch", PODS)])
    add(bed.store, priority_class("high", 100))
    bed.is_armed = True
    bed.submit("low", 8)
    over: list[int] = []
    bed.store.listeners.append(lambda: over.append(len([each for each in bed.store.objects(PODS) if is_live(each)])))

    async def story(bed: Bed) -> None:
        await asyncio.sleep(0.05)  # its Pod is there, and nobody knows
        assert len(bed.store.objects(PODS)) == 1
        bed.submit("high", 8, "high")
        await bed.pass_time(15)

    bed.live(story)
    assert max(over) == 1
    assert (bed.state("high"), bed.state("low")) == ("Running", "Restarting")


def test_a_pod_that_may_not_be_read_keeps_its_job_waiting_for_no_answer() -> None:
    """Somebody has changed the operator's role: the stream shows the Pod."""
    refusal = Forbidden("pods is forbidden", code=403, reason="Forbidden")
    bed = Bed(plugin_node, 1, [Fault(LoseReply(), "create", PODS, nth=1), Fault(Refuse(refusal), "get", PODS)])
    bed.is_armed = True
    bed.submit("a", 8)

    async def story(bed: Bed) -> None:
        await bed.pass_time(10)

    bed.live(story)
    assert (bed.state("a"), len(bed.store.objects(PODS))) == ("Running", 1)


def is_live(pod: JsonObject) -> bool:
    return pod["status"].get("phase") not in {"Succeeded", "Failed"}


@pytest.mark.parametrize(
    "error",
    [
        None,
        TooManyRequests("slow down", code=429, retry_after_s=1),
        Unavailable("the server is currently unable to handle the request", code=503),
        Conflict("the object has been modified", code=409, reason="Conflict"),
    ],
    ids=lambda error: str(error.code) if error else "no error",
)
def test_a_job_keeps_its_turn_while_its_status_is_put_off(error: ApiError | None) -> None:
    """The GPUs come free while the higher job is left alone after an error."""
    faults = [Fault(Refuse(error), "put_status", when=lambda call: call.key.name == "high", nth=1)] if error else []
    bed = Bed(plugin_node, 2, faults)
    add(bed.store, priority_class("high", 100, preempts=False))
    for name in ("first", "second"):
        bed.submit(name, 8)

    async def story(bed: Bed) -> None:
        await bed.pass_time(1)
        bed.is_armed = True
        bed.submit("high", 16, "high")
        await asyncio.sleep(0.01)
        bed.submit("low", 16)
        await asyncio.sleep(0.04)  # the higher one's status was refused, and waits for 75 ms at least
        bed.end("first")
        bed.end("second")
        await bed.pass_time(10)

    bed.live(story)
    assert (bed.state("high"), bed.state("low")) == ("Running", "Queued")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_what_a_job_held_is_free_when_its_end_is_stored(phase: str) -> None:
    bed = Bed(plugin_node, 1, [Fault(Delay(2), "put_status", when=lambda call: call.key.name == "a")])
    doubles: list[set[tuple[str, int]]] = []
    for name in ("a", "b"):
        bed.submit(name, 8)
    bed.store.listeners.append(lambda: doubles.append(bed.booked("a") & bed.booked("b")))

    async def story(bed: Bed) -> None:
        await bed.pass_time(1)
        bed.is_armed = True
        set_status(bed.store, PODS, Key("team-b", "a-a1-worker-00000"), phase=phase)
        await bed.pass_time(1)
        bed.submit("c", 8)  # which has everything looked at again
        await bed.pass_time(4)

    bed.live(story)
    assert [double for double in doubles if double] == []
    assert (bed.state("a"), bed.state("b")) == (phase, "Running")


@KINDS
@pytest.mark.parametrize("late_s", [0.5, 3.0])
def test_a_spec_that_is_edited_while_its_booking_is_on_the_way_is_the_one_that_starts(
    node: Node, late_s: float
) -> None:
    """However late the stream tells of the edit."""
    slow = [
        Fault(Delay(1), "put_status", when=is_booking_of("a"), nth=1),
        Fault(HoldEvents(late_s), "watch", TRAINING_JOBS),
    ]
    bed = Bed(node, 2, slow)
    bed.is_armed = True
    bed.submit("a", 8)

    async def story(bed: Bed) -> None:
        await asyncio.sleep(0.3)
        stored = bed.jobs()["a"]
        assert "placement" not in stored.get("status", {})  # it was not booked, so that this is possible
        stored["spec"]["gpus"] = 16
        stored["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
        bed.store.update(TRAINING_JOBS, Key("team-b", "a"), stored)
        await bed.pass_time(15)

    bed.live(story)
    assert (bed.state("a"), len(bed.booked("a"))) == ("Running", 16)
    assert {each["spec"]["containers"][0]["image"] for each in bed.store.objects(PODS)} == {"other"}
    assert bed.jobs()["a"]["status"]["observedGeneration"] == 2


def test_a_job_whose_booking_can_not_be_stored_keeps_nobody_waiting() -> None:
    error = Invalid("status.placement: Invalid value", code=422, reason="Invalid")
    bed = Bed(plugin_node, 1, [Fault(Refuse(error), "put_status", when=is_booking_of("a"))])
    bed.is_armed = True
    for name in ("a", "b"):
        bed.submit(name, 8)

    async def story(bed: Bed) -> None:
        await bed.pass_time(5)

    bed.live(story)
    assert bed.state("b") == "Running"


@pytest.mark.parametrize("seed", range(5))
def test_the_queue_s_order_holds_while_many_statuses_are_written(seed: int) -> None:
    """Thirty jobs of falling priority wait for what two jobs hold, which end 50 to 250 ms apart."""
    chance = random.Random(seed)  # noqa: S311 - a test that can be repeated

    class Slow(MortalApi):
        async def put_status(self, *arguments: Any, **options: Any) -> Head:
            await asyncio.sleep(chance.uniform(0.005, 0.06))
            return await super().put_status(*arguments, **options)

    bed = Bed(plugin_node, 2, api=Slow)
    for number in range(30):
        add(bed.store, priority_class(f"p{number:02d}", 1000 - number, preempts=False))
    for name in ("first", "second"):
        bed.submit(name, 8)

    async def story(bed: Bed) -> None:
        await bed.pass_time(2)
        for number in range(30):
            bed.submit(f"w{number:02d}", 16, f"p{number:02d}")
        await bed.pass_time(3)
        bed.end("first")
        await asyncio.sleep(chance.uniform(0.05, 0.25))
        bed.end("second")
        await bed.pass_time(3)

    bed.live(story)
    assert [name for name in sorted(bed.jobs()) if bed.state(name) == "Running"] == ["w00"]


def test_heartbeats_start_no_decision() -> None:
    bed = Bed(plugin_node, 60)
    for number in range(20):
        bed.submit(f"w{number}", 4096)

    async def story(bed: Bed) -> int:
        await bed.pass_time(90)  # nearest changes are told by then
        before = bed.operator.loop.cycles
        for number in range(1, 61):
            heartbeat = f"2026-11-21T10:00:{number - 1:02d}Z"
            set_status(bed.store, NODE_TOPOLOGIES, Key("", f"gpu-{number}"), heartbeatTime=heartbeat)
            await asyncio.sleep(1)
        return bed.operator.loop.cycles - before

    assert bed.live(story) == 0


def test_every_write_counts_against_those_in_flight_and_numbers_are_told_at_a_bounded_rate() -> None:
    """200 jobs wait; every three seconds a foreign Pod comes or goes, which changes the numbers of them all."""

    class Counting(MortalApi):
        under_way = 0
        most = 0

        async def _do(self, call: Call, act: Callable[[], Any]) -> Any:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            try:
                if call.verb not in {"list", "watch"}:
                    await asyncio.sleep(0.01)
                return await super()._do(call, act)
            finally:
                self.under_way -= 1

    bed = Bed(plugin_node, 2, api=Counting)
    count = 200
    for number in range(count):
        bed.submit(f"w{number:03d}", 32)

    async def story(bed: Bed) -> int:
        await bed.pass_time(10)
        before = len(bed.store.writes)
        for number in range(20):
            name = f"notebook-{number - number % 2}"
            if number % 2 == 0:
                add(bed.store, pod(name, node="gpu-1"))
            else:
                bed.store.delete(PODS, Key("ml", name))
            await asyncio.sleep(3)
        return sum(write.resource == TRAINING_JOBS for write in bed.store.writes[before:])

    written = bed.live(story)
    assert isinstance(bed.api, Counting)
    assert bed.api.most <= 16, "more at once, and the API server cuts our own watches"
    assert written <= 20, "more than ten a minute of words that changed"


def test_what_is_remembered_of_a_job_goes_with_it() -> None:
    bed = Bed(plugin_node, 1)

    async def story(bed: Bed) -> list[str]:
        for number in range(5):
            bed.submit(f"j{number}", 8)
            await bed.pass_time(2)
            bed.store.delete(TRAINING_JOBS, Key("team-b", f"j{number}"))
            await bed.pass_time(2)
        return sorted(bed.operator.loop._answers)

    assert bed.live(story) == []


def test_a_job_that_is_refused_again_and_again_moves_nobody_elses_words() -> None:
    """What it would get is free again a moment later, and whoever waits need not be told of either."""
    policy = Refuse(Forbidden("pods is forbidden: denied by policy", code=403, reason="Forbidden"))
    bed = Bed(plugin_node, 2, [Fault(policy, "create", PODS)])
    bed.is_armed = True
    bed.submit("refused", 8)
    bed.submit("waits", 32)

    async def story(bed: Bed) -> list[Key]:
        await asyncio.sleep(1200)  # until it is tried again every five minutes
        before = len(bed.store.writes)
        await asyncio.sleep(3600)
        return [write.key for write in bed.store.writes[before:]]

    assert bed.live(story) == []


@pytest.mark.parametrize("label", [JOB_LABEL, ATTEMPT_LABEL, ROLE_LABEL, INDEX_LABEL])
def test_a_pod_whose_labels_somebody_changes_costs_a_few_writes(label: str) -> None:
    bed = Bed(plugin_node, 2)
    bed.submit("a", 16)
    key = Key("team-b", "a-a1-worker-00001")

    async def story(bed: Bed) -> None:
        await asyncio.sleep(1)
        pod = bed.store.get(PODS, key)
        del pod["metadata"]["labels"][label]
        bed.store.update(PODS, key, pod)
        before = len(bed.api.calls)
        await asyncio.sleep(300)
        # Kinds that are not served here are looked for once a minute each.
        assert sum(1 for call in bed.api.calls[before:] if call.verb != "list") < 100
        if label == JOB_LABEL:  # whose it is, nobody sees any more
            message = "Pod team-b/a-a1-worker-00001 is this job's own, but its labels were changed; delete it"
            assert bed.jobs()["a"]["status"]["pending"]["message"] == message
            bed.store.delete(PODS, key)
        await bed.pass_time(60)
        assert bed.state("a") == "Running"

    bed.live(story)


def test_a_pod_that_is_gone_before_that_is_seen_is_stopped_once() -> None:
    bed = Bed(plugin_node, 2, [Fault(HoldEvents(4.0, lambda event: event.kind == "DELETED"), "watch", PODS)])
    bed.is_armed = True
    bed.submit("a", 16)
    failed, gone = (Key("team-b", f"a-a1-worker-0000{index}") for index in range(2))

    async def story(bed: Bed) -> int:
        await bed.pass_time(5)
        assert bed.state("a") == "Running"
        trainer = {"name": "trainer", "state": {"running": {}}}
        set_status(bed.store, PODS, gone, phase="Running", containerStatuses=[trainer])
        await bed.pass_time(1)
        before = len(bed.api.calls)
        set_status(bed.store, PODS, failed, phase="Failed")
        bed.store.delete(PODS, gone)
        await bed.pass_time(60)
        assert bed.state("a") == "Failed"
        return sum(call.verb == "json_patch" and call.key == gone for call in bed.api.calls[before:])

    assert bed.live(story) == 1
