"""Agent and operator see one machine: what the agent labels is what the operator places on, whatever is broken."""

from dataclasses import replace

import pytest

from closeknit.agent.discovery.publication import publication
from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.discovery.topology import discover
from closeknit.agent.sources.simulated import load_profile
from closeknit.api.nodetopology import Method, PortState
from closeknit.api.nodetopology_status import GpuStatus, Health, LinkDown, NicStatus, NodeTopologyStatus
from closeknit.api.objects import NodeTopology, ObjectMeta
from closeknit.cluster.objects.agent_report import report
from closeknit.machine.islands import islands

HEALTHY = NodeTopologyStatus()
BROKEN = {
    "nothing": HEALTHY,
    **{f"a NIC {state}": NodeTopologyStatus(nics=[NicStatus(name="mlx5_0", state=state)]) for state in Health},
    **{f"a GPU {state}": NodeTopologyStatus(gpus=[GpuStatus(index=3, state=state)]) for state in Health},
    "a link down": NodeTopologyStatus(links_down=[LinkDown(gpu=0, link=2), LinkDown(gpu=3, link=0)]),
}


def topology_of(status: NodeTopologyStatus) -> NodeTopology:
    """A DGX-1V, and what is said of it."""
    spec = discover(readings_of(load_profile("dgx1-v100"), "node-1"), Method.SIMULATED).spec
    return NodeTopology(metadata=ObjectMeta(name="node-1", uid="1", generation=1), spec=spec, status=status)


def labels_of(topology: NodeTopology) -> dict[str, str]:
    """What the agent writes onto the Node when it finds this."""
    found = discover(readings_of(load_profile("dgx1-v100"), "node-1"), Method.SIMULATED)
    status = topology.status
    broken = replace(found, gpus=tuple(status.gpus), nics=tuple(status.nics), links_down=tuple(status.links_down))
    wanted = publication(broken, HEALTHY, 1, "0.1.0", "2026-11-21T12:00:00Z")
    return {key.removeprefix("closeknit.dev/"): value for key, value in wanted.labels.items()}


@pytest.mark.parametrize("status", BROKEN.values(), ids=BROKEN)
def test_agent_and_operator_see_one_machine(status: NodeTopologyStatus) -> None:
    topology = topology_of(status)
    labels, seen = labels_of(topology), report(topology)
    assert seen.machine is not None
    assert labels["topology-class"] == seen.machine.topology_class
    usable = [position for position, gpu in enumerate(seen.machine.gpus) if gpu.index not in seen.unhealthy]
    sizes = sorted((len(island) for island in islands(seen.machine, usable)), reverse=True)
    assert labels["nvlink.islands"] == "-".join(map(str, sizes))
    active = [nic for nic in seen.machine.nics if nic.state is PortState.ACTIVE]
    assert labels["rdma.nics"] == str(len(active))


@pytest.mark.parametrize(
    ("broken", "is_another_machine", "usable_gpus"),
    [
        ("nothing", False, 8),
        ("a NIC Degraded", False, 8),
        ("a NIC Unhealthy", True, 8),
        ("a NIC Down", True, 8),
        ("a GPU Degraded", False, 8),
        ("a GPU Unhealthy", False, 7),
        ("a GPU Down", False, 7),
        ("a link down", True, 8),
    ],
)
def test_what_is_degraded_counts_and_what_is_out_of_use_does_not(
    broken: str, is_another_machine: bool, usable_gpus: int
) -> None:
    healthy, seen = report(topology_of(HEALTHY)), report(topology_of(BROKEN[broken]))
    assert healthy.machine is not None
    assert seen.machine is not None
    assert (seen.machine.topology_class != healthy.machine.topology_class) is is_another_machine
    assert len(seen.machine.gpus) - len(seen.unhealthy) == usable_gpus
