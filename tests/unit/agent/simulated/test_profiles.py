"""Simulated machines: consistent in themselves, alike in every run, different on every node."""

import re

import pytest
from hypothesis import given, settings

from closeknit.agent.discovery.readings import dump
from closeknit.agent.discovery.readings.readings import Readings
from closeknit.agent.discovery.simulated.profile import Faults, LinkFault, ProfileError
from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.discovery.topology import discover
from closeknit.agent.sources.simulated import load_profile, profile_names
from closeknit.api.nodetopology import Method
from closeknit.api.nodetopology_status import Health
from closeknit.machine.graph import machine
from harness.any_machine import machines


@pytest.mark.parametrize("profile", profile_names())
def test_a_profile_is_a_machine_without_contradiction(profile: str) -> None:
    found = discover(readings_of(load_profile(profile), "node-1"), Method.SIMULATED)
    graph = machine(found.spec)
    assert graph.pcie_levels
    assert len(graph.gpus) == len(found.spec.gpus) > 0
    assert all(nic.gpu_levels for nic in graph.nics)
    assert (found.gpus, found.nics, found.links_down) == ((), (), ())
    assert {finding.status for finding in found.findings} <= {"True", "False"}
    assert found.findings[0].type == "Ready"


# As nvidia-smi topo -m of such machines shows them.
LEVELS = {
    "dgx1-v100": ("PIX", "PHB", "SYS"),
    "hgx-a100-4": ("SYS", "SYS", "SYS"),
    "hgx-h200": ("NODE", "NODE", "SYS"),
    "pcie-bridges-8": ("NODE", "NODE", "SYS"),
}


@pytest.mark.parametrize("profile", LEVELS)
def test_pcie_levels_from_the_first_gpu_to_its_neighbour_the_next_and_the_last(profile: str) -> None:
    rows = discover(readings_of(load_profile(profile), "n"), Method.SIMULATED).spec.pcie.levels
    first = rows[0].split()
    assert (first[1], first[2], first[-1]) == LEVELS[profile]


def test_numa_nodes_may_count_against_the_gpus() -> None:
    gpus = discover(readings_of(load_profile("hgx-a100-4"), "n"), Method.SIMULATED).spec.gpus
    assert [gpu.numa_node for gpu in gpus] == [3, 2, 1, 0]


def test_each_h200_has_a_nic_beside_it() -> None:
    nics = discover(readings_of(load_profile("hgx-h200"), "n"), Method.SIMULATED).spec.nics or ()
    assert [nic.gpu_levels.index("PIX") for nic in nics] == list(range(8))


def test_uuids_are_those_of_the_node_in_every_run() -> None:
    profile = load_profile("dgx2")
    one, again, other = (readings_of(profile, node) for node in ("node-1", "node-1", "node-2"))
    assert one == again
    uuids = {gpu.uuid for machine in (one, other) for gpu in machine.gpus}
    assert len(uuids) == 32
    assert all(re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid or "") for uuid in uuids)


def test_a_dead_gpu_is_where_it_was_and_says_nothing() -> None:
    found = discover(readings_of(load_profile("dgx1-v100"), "n", Faults(dead_gpus=(2,))), Method.SIMULATED)
    healthy = discover(readings_of(load_profile("dgx1-v100"), "n"), Method.SIMULATED)
    assert found.spec.gpus[2].wire() == {
        "index": 2,
        "pciAddress": healthy.spec.gpus[2].pci_address,
        "numaNode": 0,
    }
    assert found.spec.pcie == healthy.spec.pcie
    assert [(gpu.index, gpu.state, gpu.reasons) for gpu in found.gpus] == [(2, Health.UNHEALTHY, ["GPULost"])]
    assert found.spec.nvlink.pairs == [pair for pair in healthy.spec.nvlink.pairs if 2 not in (pair.a, pair.b)]
    assert found.links_down == ()


def test_a_dead_link_is_down_at_both_ends() -> None:
    found = discover(
        readings_of(load_profile("dgx1-v100"), "n", Faults(links_down=(LinkFault(0, 2),))), Method.SIMULATED
    )
    healthy = discover(readings_of(load_profile("dgx1-v100"), "n"), Method.SIMULATED)
    assert found.spec == healthy.spec
    down = tuple((link.gpu, link.link) for link in found.links_down)
    assert down == ((0, 2), (3, 0))
    links, all_links = machine(found.spec, down).links, machine(found.spec).links
    assert (links[0][3], all_links[0][3]) == (1, 2)
    assert sum(map(sum, links)) == sum(map(sum, all_links)) - 2


def test_mig_on_one_gpu_cuts_it_into_its_smallest_devices() -> None:
    gpus = discover(readings_of(load_profile("hgx-h200"), "n", Faults(mig_gpus=(3,))), Method.SIMULATED).spec.gpus
    modes = ["-" if gpu.mig is None else str(gpu.mig.mode) for gpu in gpus]
    assert modes == ["Disabled"] * 3 + ["Enabled"] + ["Disabled"] * 4
    mig = gpus[3].mig
    assert mig is not None
    assert {device.profile for device in mig.devices} == {"1g.18gb"}
    assert len({device.uuid for device in mig.devices}) == 7


def test_a_nic_that_is_down_is_named() -> None:
    found = discover(readings_of(load_profile("hgx-h200"), "n", Faults(nics_down=("mlx5_3",))), Method.SIMULATED)
    assert [(nic.name, nic.state, nic.reasons) for nic in found.nics] == [("mlx5_3", Health.DOWN, ["PortDown"])]


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        (Faults(dead_gpus=(8,)), "fault deadGPUs names GPU 8; the machine has GPUs 0 to 7"),
        (Faults(links_down=(LinkFault(1, 6),)), "fault linksDown names link 6 of GPU 1; there is no such link"),
        (
            Faults(links_down=(LinkFault(-1, 0),)),
            "fault linksDown names link 0 of GPU -1; there is no such link",
        ),
        (Faults(lost_switches=(0,)), "fault lostSwitches names switch 0; the machine has 0"),
        (Faults(mig_gpus=(0,)), "fault migGPUs names GPU 0; a Tesla V100-SXM2-32GB has no MIG"),
        (
            Faults(nics_down=("mlx5_9",)),
            "fault nicsDown names mlx5_9; the machine has mlx5_0, mlx5_1, mlx5_2, mlx5_3",
        ),
    ],
)
def test_a_fault_that_the_machine_cannot_have_is_refused(faults: Faults, message: str) -> None:
    with pytest.raises(ProfileError) as refused:
        readings_of(load_profile("dgx1-v100"), "n", faults)
    assert str(refused.value) == message


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(ProfileError) as refused:
        load_profile("dgx-9000")
    assert str(refused.value) == f"there is no machine profile 'dgx-9000'; known: {', '.join(profile_names())}"


@settings(deadline=None)  # other tests may have the processor
@given(machines())
def test_a_dump_holds_exactly_the_readings(readings: Readings) -> None:
    assert dump.decode(dump.encode(readings)) == readings


@settings(deadline=None)  # other tests may have the processor
@given(machines())
def test_whatever_is_broken_the_topology_never_contradicts_itself(readings: Readings) -> None:
    found = discover(readings, Method.SIMULATED)
    whole = machine(found.spec)
    left = machine(found.spec, tuple((link.gpu, link.link) for link in found.links_down))
    dark = {gpu.index for gpu in found.gpus if gpu.reasons == ["FabricNotReady"]}
    lost = {gpu.index for gpu in found.gpus} - dark
    assert [gpu.index for gpu in readings.gpus if "handle" in gpu.errors] == sorted(lost)
    modes = [gpu.mig_mode or (0, 0) for gpu in readings.gpus]
    assert not dark or not any(link.state for gpu in readings.gpus for link in gpu.links if modes[gpu.index] == (0, 0))
    for position, gpu in enumerate(left.gpus):
        up = [link for link in readings.gpus[gpu.index].links if link.state == 1]
        assert left.switch_links[position] + sum(left.links[position]) <= len(up)
        assert left.switch_links[position] <= whole.switch_links[position]
