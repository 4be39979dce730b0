"""What is written when: every write is the answer to a change, and none is lost when the API server refuses."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from closeknit.agent.discovery.publication import publication
from closeknit.agent.discovery.readings.activity import LiveGpu
from closeknit.agent.discovery.readings.byte_counters import NO_TRAFFIC, ByteCounters
from closeknit.agent.discovery.readings.readings import Readings, XidReading
from closeknit.agent.discovery.simulated.profile import NO_FAULTS, Faults
from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.discovery.topology import Discovery, discover
from closeknit.agent.node_agent import Agent
from closeknit.agent.publish import NODE_TOPOLOGIES, NODES, NotYet, Publisher
from closeknit.agent.sources.simulated import load_profile
from closeknit.agent.sources.source import SourceError
from closeknit.api.nodetopology import Method
from closeknit.api.nodetopology_status import NodeTopologyStatus
from closeknit.cluster.objects.agent_report import report_from_builtins
from closeknit.kube.backoff import Backoff
from closeknit.kube.errors import Forbidden, Unavailable
from closeknit.runtime.logs import facts
from faults import virtual_time
from faults.fault import Fault, LoseReply, Refuse
from faults.memory_api import MemoryApi
from faults.store import Store

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
MACHINE = readings_of(load_profile("hgx-a100-4"), "node-1")


def found(faults: Faults = NO_FAULTS) -> Discovery:
    return discover(readings_of(load_profile("hgx-a100-4"), "node-1", faults), Method.SIMULATED)


async def with_node(*faults: Fault) -> MemoryApi:
    store = Store()
    admin = MemoryApi(store)
    await admin.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
    return MemoryApi(store, faults)


def publisher(api: MemoryApi) -> Publisher:
    return Publisher(api, "node-1", agent_version="0.1.0")


def test_what_the_operator_stores_of_its_node_stays_and_costs_no_write() -> None:
    async def main() -> None:
        api = await with_node()
        ours = publisher(api)
        await ours.publish(found(), NOW)
        lemon = {"since": "2026-11-20T10:00:00Z", "message": "node node-1 ended 2 runs within 7 days"}
        ends = [{"job": "team-b/train", "reason": "NodeLost", "ended": "2026-11-20T10:00:00Z"}]
        values = {"runEnds": ends, "lemon": lemon}
        patch = [{"op": "add", "path": f"/status/{field}", "value": value} for field, value in values.items()]
        await api.json_patch(NODE_TOPOLOGIES, "node-1", patch, subresource="status")
        assert await ours.publish(found(), NOW + timedelta(minutes=1)) == []
        assert "status" in await ours.publish(found(), NOW + timedelta(minutes=6))
        status = (await api.get(NODE_TOPOLOGIES, "node-1"))["status"]
        assert (status["runEnds"], status["lemon"]) == (ends, lemon)

    virtual_time.run(main())


def test_first_everything_then_nothing() -> None:
    async def main() -> None:
        ours = publisher(await with_node())
        assert await ours.publish(found(), NOW) == ["NodeTopology", "status", "labels"]
        assert await ours.publish(found(), NOW + timedelta(minutes=4)) == []

    virtual_time.run(main())


def test_a_change_of_health_is_a_change_of_status_and_label() -> None:
    async def main() -> None:
        ours = publisher(await with_node())
        await ours.publish(found(), NOW)
        broken = discover(msgspec.structs.replace(MACHINE, gpus=_with_mig_pending(MACHINE)), Method.SIMULATED)
        assert await ours.publish(broken, NOW + timedelta(seconds=60)) == ["status", "labels"]

    virtual_time.run(main())


def _with_mig_pending(machine: Readings) -> Any:
    return (msgspec.structs.replace(machine.gpus[0], mig_mode=(0, 1)), *machine.gpus[1:])


@pytest.mark.parametrize(("minutes", "is_written"), [(4.99, False), (5, True), (600_000, True), (-1, True)])
def test_the_heartbeat(minutes: float, is_written: bool) -> None:
    async def main() -> None:
        api = await with_node()
        ours = publisher(api)
        await ours.publish(found(), NOW)
        later = NOW + timedelta(minutes=minutes)  # before: a clock that was set back
        assert ("status" in await ours.publish(found(), later)) is is_written
        topology = await api.get(NODE_TOPOLOGIES, "node-1")
        written = later if is_written else NOW
        assert topology["status"]["heartbeatTime"] == written.strftime("%Y-%m-%dT%H:%M:%SZ")

    virtual_time.run(main())


@pytest.mark.parametrize(
    "damage",
    [
        {"spec": {"gpus": "eight"}},
        {"spec": {"source": {"method": "Telepathy"}, "gpus": []}},
        {"status": {"conditions": [{"type": "Ready"}]}},
        {"status": {"heartbeatTime": "0000-01-01t00:00:00z"}},
        {"status": {"heartbeatTime": "2026-11-21T12:00:60Z"}},
        {"status": {"heartbeatTime": "2026-11-21T12:00:00"}},
    ],
    ids=str,
)
def test_what_is_stored_and_cannot_be_read_is_written_over(damage: dict[str, Any]) -> None:
    async def main() -> None:
        api = await with_node()
        await publisher(api).publish(found(), NOW)
        admin = MemoryApi(api.store)
        stored = await admin.get(NODE_TOPOLOGIES, "node-1")
        for part, value in damage.items():
            subresource = "status" if part == "status" else None
            patch = [{"op": "replace", "path": f"/{part}", "value": {**stored[part], **value}}]
            await admin.json_patch(NODE_TOPOLOGIES, "node-1", patch, subresource=subresource)
        assert await publisher(api).publish(found(), NOW + timedelta(minutes=1))
        healed = await admin.get(NODE_TOPOLOGIES, "node-1")
        assert healed["spec"] == stored["spec"]
        assert healed["status"]["heartbeatTime"] == "2026-11-21T12:01:00Z"
        assert await publisher(api).publish(found(), NOW + timedelta(minutes=2)) in ([], ["labels"])

    virtual_time.run(main())


def test_a_write_that_fails_is_made_up_for() -> None:
    async def main() -> None:
        busy = Fault(Refuse(Unavailable("etcd is busy")), "apply", nth=2)
        ours = publisher(await with_node(busy))
        with pytest.raises(Unavailable):
            await ours.publish(found(), NOW)
        assert await ours.publish(found(), NOW) == ["status", "labels"]
        assert await ours.publish(found(), NOW) == []

    virtual_time.run(main())


def test_a_write_whose_answer_is_lost_is_not_made_twice() -> None:
    async def main() -> None:
        ours = publisher(await with_node(Fault(LoseReply(), "apply", nth=1)))
        with pytest.raises(Unavailable):
            await ours.publish(found(), NOW)
        assert await ours.publish(found(), NOW) == ["status", "labels"]

    virtual_time.run(main())


def test_labels_whose_answer_is_lost_are_looked_at_first() -> None:
    async def main() -> None:
        api = await with_node(Fault(LoseReply(), "apply", nth=3))
        ours = publisher(api)
        with pytest.raises(Unavailable):
            await ours.publish(found(), NOW)
        known = len(api.calls)
        await ours.publish(found(), NOW)
        asked = [(call.verb, call.resource.plural) for call in api.calls[known:]]
        assert asked[:2] == [("get", "nodetopologies"), ("get", "nodes")]

    virtual_time.run(main())


def test_without_a_node_nothing_is_written() -> None:
    async def main() -> None:
        api = MemoryApi(Store())
        with pytest.raises(NotYet, match="there is no Node node-1"):
            await publisher(api).publish(found(), NOW)
        assert [call.verb for call in api.calls] == ["get", "get"]

    virtual_time.run(main())


async def with_an_orphan(*faults: Fault) -> MemoryApi:
    """A NodeTopology that outlived its Node as an orphan, or came out of a backup: nobody owns it."""
    api = await with_node(*faults)
    orphan = {"apiVersion": "closeknit.dev/v1alpha1", "kind": "NodeTopology", "metadata": {"name": "node-1"}}
    await MemoryApi(api.store).create(NODE_TOPOLOGIES, orphan | {"spec": {"source": {"method": "NVML"}, "gpus": []}})
    return api


def test_an_object_without_an_owner_is_adopted() -> None:
    async def main() -> None:
        api = await with_an_orphan()
        assert await publisher(api).publish(found(), NOW) == ["NodeTopology", "status", "labels"]
        node, topology = await api.get(NODES, "node-1"), await api.get(NODE_TOPOLOGIES, "node-1")
        assert [owner["uid"] for owner in topology["metadata"]["ownerReferences"]] == [node["metadata"]["uid"]]
        assert topology["spec"] == found().spec.wire()

    virtual_time.run(main())


def test_where_it_may_not_be_adopted_it_says_what_to_delete() -> None:
    async def main() -> None:
        refusal = Forbidden("cannot set an ownerRef on a resource you can't delete", code=403, reason="Forbidden")
        api = await with_an_orphan(Fault(Refuse(refusal), "apply"))
        with pytest.raises(NotYet, match=r"delete it and it is made again: kubectl delete nodetopology node-1$"):
            await publisher(api).publish(found(), NOW)

    virtual_time.run(main())


def test_an_object_of_an_earlier_node_of_that_name_is_left_to_be_collected() -> None:
    async def main() -> None:
        api = await with_node()
        # The test's API server collects what has no owner at once, as a real one does within a moment.
        other = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "still-there"}}
        uid = (await api.create(NODES, other))["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": uid}
        old = {
            "apiVersion": "closeknit.dev/v1alpha1",
            "kind": "NodeTopology",
            "metadata": {"name": "node-1", "ownerReferences": [owner]},
            "spec": found().spec.wire(),
        }
        stored = await MemoryApi(api.store).create(NODE_TOPOLOGIES, old)
        ours = publisher(api)
        with pytest.raises(NotYet, match="belongs to another Node of that name"):
            await ours.publish(found(), NOW)
        await MemoryApi(api.store).delete(NODE_TOPOLOGIES, "node-1", uid=stored["metadata"]["uid"])
        assert await ours.publish(found(), NOW) == ["NodeTopology", "status", "labels"]
        node, topology = await api.get(NODES, "node-1"), await api.get(NODE_TOPOLOGIES, "node-1")
        assert topology["metadata"]["ownerReferences"] == [owner | {"uid": node["metadata"]["uid"]}]

    virtual_time.run(main())


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    first = publication(found(), NodeTopologyStatus(), 1, "0.1.0", "2026-11-21T12:00:00Z").status
    faulty = publication(found(Faults(dead_gpus=(1,))), first, 1, "0.1.0", "2026-11-21T13:00:00Z").status
    assert faulty.conditions[0].reason == "PartlyRead"
    assert faulty.conditions[0].last_transition_time == "2026-11-21T12:00:00Z"


def test_a_topology_that_contradicts_itself_is_published_as_not_ready() -> None:
    twin = msgspec.structs.replace(MACHINE.gpus[0], index=1)
    contradiction = discover(msgspec.structs.replace(MACHINE, gpus=(MACHINE.gpus[0], twin)), Method.RECORDED)
    wanted = publication(contradiction, NodeTopologyStatus(), 1, None, "2026-11-21T12:00:00Z")
    ready = wanted.status.conditions[0]
    assert (ready.status, ready.reason) == ("False", "InvalidTopology")
    assert ready.message.startswith("gpus[1].uuid: ")
    assert wanted.labels == {"closeknit.dev/health": "degraded"}


def test_a_machine_that_can_no_longer_be_read_keeps_its_spec_and_is_not_ready() -> None:
    blind = discover(msgspec.structs.replace(MACHINE, gpus=(), errors={"driver": "LibRmVersionMismatch"}), Method.NVML)

    async def main() -> None:
        api = await with_node()
        await publisher(api).publish(found(), NOW)
        before = await api.get(NODE_TOPOLOGIES, "node-1")
        restarted = publisher(api)
        assert await restarted.publish(blind, NOW) == ["status", "labels"]
        after = await api.get(NODE_TOPOLOGIES, "node-1")
        assert (after["spec"], after["metadata"]["generation"]) == (before["spec"], before["metadata"]["generation"])
        ready = after["status"]["conditions"][0]
        assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "False", "DriverMismatch")
        labels = (await api.get(NODES, "node-1"))["metadata"]["labels"]
        assert (labels["closeknit.dev/health"], labels["closeknit.dev/gpu.count"]) == ("degraded", "4")
        assert await restarted.publish(found(), NOW) == ["status", "labels"]

    virtual_time.run(main())


def test_a_machine_that_could_never_be_read_is_published_as_such() -> None:
    blind = discover(Readings(errors={"driver": "DriverNotLoaded"}), Method.NVML)

    async def main() -> None:
        api = await with_node()
        assert await publisher(api).publish(blind, NOW) == ["NodeTopology", "status", "labels"]
        topology = await api.get(NODE_TOPOLOGIES, "node-1")
        assert (topology["spec"]["source"], topology["spec"]["gpus"]) == ({"method": "NVML"}, [])
        report = report_from_builtins(topology)
        assert report.not_ready is not None
        assert report.not_ready.startswith("its agent says DriverNotLoaded: NVIDIA's kernel modules are not loaded; ")

    virtual_time.run(main())


class Flaky:
    """A machine that cannot be read the first time."""

    method = Method.SIMULATED

    def __init__(self) -> None:
        self.reads = 0

    def read(self) -> Readings:
        self.reads += 1
        if self.reads == 1:
            raise SourceError("the driver is being upgraded")
        return MACHINE

    def live(self) -> tuple[LiveGpu, ...]:
        return ()

    def traffic(self, gpus: Sequence[str]) -> ByteCounters:  # noqa: ARG002 -- it is the protocol's
        return NO_TRAFFIC


class Playing:
    """A machine that is read as it is told to."""

    method = Method.SIMULATED

    def __init__(self, *readings: Readings) -> None:
        self.readings = list(readings)
        self.reads = 0

    def read(self) -> Readings:
        self.reads += 1
        return self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]

    def live(self) -> tuple[LiveGpu, ...]:
        return ()

    def traffic(self, gpus: Sequence[str]) -> ByteCounters:  # noqa: ARG002 -- it is the protocol's
        return NO_TRAFFIC


class Listening(Publisher):
    """Says after which reading it was called, and with what."""

    def __init__(self, api: MemoryApi, source: Playing) -> None:
        super().__init__(api, "node-1", agent_version="0.1.0")
        self._source = source
        self.told: list[tuple[int, list[str]]] = []

    async def publish(self, found: Discovery, now: datetime) -> list[str]:
        written = await super().publish(found, now)
        self.told.append((self._source.reads, [reason for gpu in found.gpus for reason in gpu.reasons]))
        return written


def test_news_are_published_at_once_and_what_is_remembered_is_no_news() -> None:
    event = XidReading(xid=79, uuid=MACHINE.gpus[0].uuid)
    nameless = (msgspec.structs.replace(MACHINE.gpus[0], name=None, errors={"name": "Unknown"}), *MACHINE.gpus[1:])
    source = Playing(
        MACHINE,
        msgspec.structs.replace(MACHINE, gpus=nameless),  # no news: it is remembered
        msgspec.structs.replace(MACHINE, xids=(event,)),
        MACHINE,
    )

    async def main() -> list[tuple[int, list[str]]]:
        publisher = Listening(await with_node(), source)
        running = asyncio.create_task(Agent("node-1", source, publisher, interval_s=0.001, chance=lambda: 0.0).run())
        async with asyncio.timeout(30):
            while source.reads < 30:  # noqa: ASYNC110 -- a thread reads, which sets no event
                await asyncio.sleep(0.001)
        running.cancel()
        return publisher.told

    assert asyncio.run(main()) == [(1, []), (3, ["XID79"])]


def test_an_agent_goes_on_after_whatever_fails_and_says_it_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        refused = [Fault(Refuse(Forbidden("not yet allowed")), "apply", nth=n) for n in (1, 2, 3)]
        api = await with_node(*refused)
        source = Flaky()
        agent = asyncio.create_task(
            Agent("node-1", source, publisher(api), interval_s=60, backoff=Backoff(0.001, 60), chance=lambda: 0.0).run()
        )
        async with asyncio.timeout(30):
            while "wrote" not in caplog.text:  # noqa: ASYNC110 -- a line of a log sets no event
                await asyncio.sleep(0.001)
        agent.cancel()

    caplog.set_level("INFO")
    asyncio.run(main())
    assert [(record.message, facts(record)) for record in caplog.records] == [
        ("not published, trying again: the driver is being upgraded", {"node": "node-1"}),
        ("not published, trying again: not yet allowed", {"node": "node-1"}),
        ("wrote NodeTopology, status, labels", {"node": "node-1"}),
    ]
