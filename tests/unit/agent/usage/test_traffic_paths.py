"""The ways that a container's data has moved, by counters of the machine: what nobody can tell is told of nobody."""

import asyncio
import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from closeknit.agent.discovery.health.history import History
from closeknit.agent.discovery.publication import publication
from closeknit.agent.discovery.readings.byte_counters import NO_TRAFFIC, ByteCounters
from closeknit.agent.discovery.readings.readings import HealthReading
from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.discovery.topology import discover
from closeknit.agent.discovery.usage import traffic_paths
from closeknit.agent.discovery.usage.allocations import Grant
from closeknit.agent.discovery.usage.traffic_paths import MOVED_BYTES, TrafficPaths
from closeknit.agent.kubelet.kubelet_source import KubeletSource
from closeknit.agent.node_agent import Agent
from closeknit.agent.nvml import gpu_state
from closeknit.agent.publish import NODE_TOPOLOGIES, NODES, Publisher
from closeknit.agent.sources.hardware import HardwareSource
from closeknit.agent.sources.simulated import load_profile
from closeknit.agent.sysfs import interface_bytes, rdma_bytes, rdma_devices
from closeknit.api.nodetopology import Method, RdmaNamespaces
from closeknit.api.nodetopology_status import Allocation, NodeTopologyStatus, TrafficPath
from faults.memory_api import MemoryApi
from harness.nvml_driver import InProcess
from harness.nvml_library import NvmlLibrary
from harness.sysfs_tree import HostBridge, Machine, Port, Tree, nic, write

NVLINK, RDMA, SOCKET = TrafficPath.NVLINK, TrafficPath.RDMA, TrafficPath.SOCKET
A, B = "GPU-a", "GPU-b"
NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
PORTS = frozenset({"mlx5_0:1"})


def held(pod: str, *devices: str) -> Allocation:
    return Allocation(namespace="team", pod=pod, container="main", devices=list(devices))


def at(
    nvlink: int = 0, rdma: int = 0, socket: int = 0, *, gpus: Sequence[str] = (A, B), port: str = "mlx5_0:1"
) -> ByteCounters:
    """Counters, in multiples of what counts as data."""
    return ByteCounters(
        dict.fromkeys(gpus, nvlink * MOVED_BYTES),
        {port: rdma * MOVED_BYTES},
        {uuid: {"eth0": socket * MOVED_BYTES} for uuid in gpus},
    )


def told(
    *looks: tuple[Sequence[Allocation], ByteCounters],
    ports: frozenset[str] | None = PORTS,
    linked: frozenset[str] = frozenset({A, B}),
) -> dict[str, list[TrafficPath]]:
    """Pod -> its ways, after these looks."""
    found = TrafficPaths()
    for containers, traffic in looks:
        found = traffic_paths.after(found, containers, traffic, ports, linked)
    return {each.pod: found.paths(each) for each in looks[-1][0]}


def test_what_moved_since_the_container_is_there() -> None:
    one = [held("one", A, B)]
    assert told((one, at(9, 9, 9))) == {"one": []}  # before it came
    assert told((one, at(9, 9, 9)), (one, at(10, 10, 10))) == {"one": [NVLINK, RDMA, SOCKET]}
    assert told((one, at()), (one, at(1, 0, 1))) == {"one": [NVLINK, SOCKET]}  # it fell back to TCP
    assert told((one, at()), (one, at(1)), (one, at(1)), ([held("two", A, B)], at(2))) == {"two": []}


def test_little_by_little_is_as_much() -> None:
    steps = [(MOVED_BYTES // 4) * number for number in range(5)]
    looks = [([held("one", A)], ByteCounters({A: step}, {}, {})) for step in steps]
    assert [told(*looks[: number + 1])["one"] for number in range(5)] == [[], [], [], [], [NVLINK]]


def test_a_counter_that_began_anew_or_was_not_read_tells_nothing() -> None:
    one = [held("one", A)]
    assert told((one, at(5, 5, 5)), (one, at(3, 3, 3))) == {"one": []}
    assert told((one, at(5, 5, 5)), (one, NO_TRAFFIC), (one, at(9, 9, 9))) == {"one": []}


def test_of_a_gpu_that_two_hold_nobody_knows_whose_data_went() -> None:
    both = [held("one", A), held("two", A, B)]
    assert told((both, at()), (both, at(1, gpus=(A,)))) == {"one": [], "two": []}
    assert told((both, at()), (both, at(1))) == {"one": [], "two": [NVLINK]}  # over B, which is its own
    assert told((both, at()), (both[:1], at(1))) == {"one": []}  # part of it was the other one's


def test_the_network_is_told_of_one_that_is_alone() -> None:
    one, both = [held("one", A)], [held("one", A), held("two", B)]
    assert told((both, at()), (both, at(0, 1, 1))) == {"one": [], "two": []}
    assert told((both, at()), (one, at(0, 1, 1))) == {"one": []}
    assert told((both, at()), (one, at(0, 1, 1)), (one, at(0, 2, 2))) == {"one": [RDMA, SOCKET]}
    switches = {"mlx5_9:1": 9 * MOVED_BYTES, **at().rdma}  # and their manager's port
    assert told((one, at()), (one, dataclasses.replace(at(0, 0, 1), rdma=switches))) == {"one": [SOCKET]}


def test_sockets_are_told_only_where_every_other_way_is_counted() -> None:
    """Else a driver that cannot count would make a silent NVLink of a busy one."""
    one = [held("one", A)]
    blind = dataclasses.replace(at(0, 0, 1), nvlink={})
    assert told((one, at()), (one, blind)) == {"one": []}
    assert told((one, at()), (one, blind), linked=frozenset({B})) == {"one": [SOCKET]}  # it has none to count
    assert told((one, at()), (one, at(1)), (one, blind)) == {"one": [NVLINK, SOCKET]}  # it is no longer asked
    assert told((one, at()), (one, dataclasses.replace(at(0, 0, 1), rdma={}))) == {"one": []}


def test_which_gpus_have_nvlinks() -> None:
    spec = discover(readings_of(load_profile("hgx-h200"), "node-1"), Method.SIMULATED).spec
    assert traffic_paths.linked(spec) == {gpu.uuid for gpu in spec.gpus}
    mesh = discover(readings_of(load_profile("dgx1-v100"), "node-1"), Method.SIMULATED).spec
    assert len(traffic_paths.linked(mesh)) == 8
    bare = discover(readings_of(load_profile("pcie-8"), "node-1"), Method.SIMULATED).spec
    assert traffic_paths.linked(bare) == frozenset()


def test_where_ports_may_be_out_of_sight_the_network_is_not_told() -> None:
    """Else a job whose ports went into its Pod would seem to have fallen back to TCP."""
    one = [held("one", A)]
    assert told((one, at()), (one, at(1, 1, 1)), ports=None) == {"one": [NVLINK]}
    spec = discover(readings_of(load_profile("hgx-h200"), "node-1"), Method.SIMULATED).spec
    ports = traffic_paths.rdma_ports(spec)
    assert ports is not None and len(ports) == len(spec.nics or ()) > 0
    exclusive = spec.capabilities.model_copy(update={"rdma_namespaces": RdmaNamespaces.EXCLUSIVE})
    assert traffic_paths.rdma_ports(spec.model_copy(update={"capabilities": exclusive})) is None
    assert traffic_paths.rdma_ports(spec.model_copy(update={"nics": []})) == frozenset()
    assert traffic_paths.rdma_ports(spec.model_copy(update={"nics": None})) is None


def test_when_to_look_and_at_which_gpus() -> None:
    one, two = held("one", A), held("two", B)
    found = traffic_paths.after(TrafficPaths(), [one], at(), PORTS, ())
    assert not traffic_paths.is_due(TrafficPaths(), [], 1000.0)  # an idle node is never looked at
    assert traffic_paths.is_due(found, [one, two], 0.0) and traffic_paths.is_due(found, [], 0.0)
    assert not traffic_paths.is_due(found, [one], 59.0) and traffic_paths.is_due(found, [one], 60.0)
    assert traffic_paths.wanted(found, [one, two]) == [A, B]
    assert traffic_paths.wanted(traffic_paths.after(found, [one], at(1), PORTS, ()), [one, two]) == [B]


def test_what_was_published_stays_over_a_restart_of_the_agent() -> None:
    machine = discover(readings_of(load_profile("pcie-8"), "node-1"), Method.SIMULATED, History())
    before = NodeTopologyStatus(
        allocations=[held("one", A).model_copy(update={"paths": [SOCKET]}), held("two", B)],
    )

    def published(*allocations: Allocation) -> list[list[TrafficPath]]:
        found = dataclasses.replace(machine, allocations=allocations)
        status = publication(found, before, None, None, "2026-11-22T12:00:00Z").status
        return [each.paths for each in status.allocations or []]

    assert published(held("one", A)) == [[SOCKET]]
    assert published(held("one", A).model_copy(update={"paths": [NVLINK]}), held("two", B)) == [[NVLINK, SOCKET], []]
    assert published(held("one", B)) == [[]]  # other devices: another container


DEV = """Inter-|   Receive   |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop …
    lo: 5000 1 0 0 0 0 0 0 5000 1 0 0 0 0 0 0
  eth0: 100 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0
"""


def test_interfaces_of_a_program(tmp_path: Path) -> None:
    assert interface_bytes(tmp_path, 17) is None
    write(tmp_path / "proc/17/net/dev", DEV)
    assert interface_bytes(tmp_path, 17) is None  # is it the node's own network?
    write(tmp_path / "proc/1/net/dev", DEV)
    assert interface_bytes(tmp_path, 17) is None
    write(tmp_path / "proc/1/net/dev", DEV + DEV.splitlines()[-1].replace("eth0", "veth1") + "\n")
    assert interface_bytes(tmp_path, 17) == {"eth0": 120}


@pytest.mark.parametrize("content", ["", "eth0: 1", "eth0: x y", "\0" * 99, DEV.replace("100", "-1"), "a" * (1 << 19)])
def test_torn_interfaces(content: str, tmp_path: Path) -> None:
    write(tmp_path / "proc/17/net/dev", content)
    write(tmp_path / "proc/1/net/dev", DEV.replace("eth0", "eth1"))
    assert not interface_bytes(tmp_path, 17)


def test_counters_of_rdma_ports(tmp_path: Path) -> None:
    roce = nic("mlx5_1", ports=(Port("Ethernet"),), netdevs=("eth1",))
    tree = Tree(tmp_path, Machine([HostBridge(0, [nic("mlx5_0"), roce, nic("efa_0"), nic("mlx5_3")])]))
    for name in ("mlx5_0", "mlx5_1"):
        function = tree.functions[name]
        write(function / f"infiniband/{name}/ports/1/counters/port_xmit_data", "1000\n")
        write(function / f"infiniband/{name}/ports/1/counters/port_rcv_data", "500\n")
        netdev = {"mlx5_0": "ib0", "mlx5_1": "eth1"}[name]
        for counter in ("tx_bytes", "rx_bytes"):
            write(function / "net" / netdev / "statistics" / counter, "700\n")
    write(tree.functions["efa_0"] / "infiniband/efa_0/ports/1/hw_counters/tx_bytes", "30\n")
    write(tree.functions["efa_0"] / "infiniband/efa_0/ports/1/hw_counters/rx_bytes", "12\n")
    write(tree.functions["mlx5_3"] / "infiniband/mlx5_3/ports/1/counters/port_xmit_data", "1000\n")
    found = rdma_bytes(tmp_path, rdma_devices(tmp_path, {}))
    # Of InfiniBand, its IP is none of it; an Ethernet port does not count that there. One half is not the whole.
    assert found == {"mlx5_0:1": 6000 - 1400, "mlx5_1:1": 6000, "efa_0:1": 42}


def test_an_agent_publishes_a_way_when_it_is_new_and_then_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = readings_of(load_profile("hgx-h200"), "node-1")
    first = msgspec.structs.replace(whole.gpus[0], health=HealthReading(pids=(17,)))
    machine = msgspec.structs.replace(whole, gpus=(first, *whole.gpus[1:]))
    library = NvmlLibrary(machine)
    library.install(monkeypatch)
    monkeypatch.setattr(gpu_state, "_sees_all_processes", lambda: True)
    monkeypatch.setattr(traffic_paths, "LOOK_S", 0.0)
    write(tmp_path / "proc/1/net/dev", DEV.replace("eth0", "eth1"))
    write(tmp_path / "proc/17/net/dev", DEV)

    class Pods:
        async def list(self) -> list[Grant]:
            return [Grant("team", "rank-0", "main", (("nvidia.com/gpu", first.uuid or ""),))]

    async def nothing() -> dict[Any, str]:
        return {}

    async def main() -> None:
        api = MemoryApi()
        await api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
        publisher = Publisher(api, "node-1", agent_version=None)
        source = HardwareSource(tmp_path, InProcess())
        agent = Agent("node-1", source, publisher, interval_s=5, kubelet=KubeletSource(Pods(), nothing))

        async def paths() -> tuple[list[str], list[str]]:
            written = await publisher.publish(await agent._discovery(), NOW)
            status = (await api.get(NODE_TOPOLOGIES, "node-1"))["status"]
            return written, status["allocations"][0].get("paths", [])

        library.sent_kib = {0: 7}
        assert (await paths())[1] == []
        assert await paths() == ([], [])
        library.sent_kib = {0: 7 + (MOVED_BYTES >> 10)}
        assert await paths() == (["status"], ["NVLink"])
        write(tmp_path / "proc/17/net/dev", DEV.replace("100", str(MOVED_BYTES + 200)))
        assert await paths() == (["status"], ["NVLink", "Socket"])
        assert await paths() == ([], ["NVLink", "Socket"])

    asyncio.run(main())
