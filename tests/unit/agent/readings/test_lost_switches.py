"""Switches that were lost before the agent's first reading: no machine is taken for one that never had any."""

from typing import Any

import msgspec
import pytest

from closeknit.agent.discovery.readings.carried_gpus import remembered
from closeknit.agent.discovery.readings.readings import GpuReading, LinkReading, Readings
from closeknit.agent.discovery.simulated.profile import Faults
from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.discovery.topology import Discovery, discover
from closeknit.agent.sources.simulated import load_profile
from closeknit.api.nodetopology import Method
from closeknit.api.nodetopology_status import NodeTopologyStatus
from closeknit.api.reasons import MachineConditionType
from closeknit.machine.published_labels import node_labels

replace = msgspec.structs.replace
ALL = tuple(range(8))


def machine(profile: str, *lost: int) -> Readings:
    return readings_of(load_profile(profile), "node-1", Faults(lost_switches=lost))


def without_switches(profile: str) -> Readings:
    model = load_profile(profile).nvlink
    assert model is not None
    return machine(profile, *range(model.switches))


def of_gpus(readings: Readings, **facts: Any) -> Readings:
    return replace(readings, gpus=tuple(replace(gpu, **facts) for gpu in readings.gpus))


def unhealthy(found: Discovery) -> dict[int, list[str]]:
    return {gpu.index: gpu.reasons for gpu in found.gpus if gpu.state == "Unhealthy"}


def fabric(found: Discovery) -> tuple[str, str] | None:
    told = [each for each in found.findings if each.type is MachineConditionType.FABRIC_READY]
    return (told[0].status, told[0].message) if told else None


@pytest.mark.parametrize(
    ("profile", "why"),
    [
        ("hgx-h200", "the driver has them take part in an NVLink fabric"),
        ("hgx-a100-8", "8 NVIDIA A100-SXM4-80GB in one machine always have NVSwitches"),
    ],
)
def test_a_machine_without_its_switches_is_not_one_without_nvlink(profile: str, why: str) -> None:
    healthy, found = discover(machine(profile), Method.NVML), discover(without_switches(profile), Method.NVML)
    assert found.spec.nvlink.switched
    assert found.spec.nvlink.links_per_gpu == healthy.spec.nvlink.links_per_gpu
    assert (found.spec.nvlink.generation, found.spec.nvlink.link_bandwidth_gb_s) == (None, None)  # nobody knows
    assert len(found.links_down) == sum(healthy.spec.nvlink.links_per_gpu)
    assert unhealthy(found) == {index: ["FabricNotReady"] for index in ALL}
    told = fabric(found)
    assert told is not None and told[0] == "False" and why in told[1]
    labels = node_labels(found.spec, NodeTopologyStatus(gpus=list(found.gpus), links_down=list(found.links_down)))
    assert labels["closeknit.dev/health"] != "healthy"


def test_switches_on_the_bus_tell_it_too() -> None:
    readings = of_gpus(machine("hgx-a100-8"), name="NVIDIA X1")
    switches = [each for each in readings.pci if each.device_class == "0x068000"]
    dark = of_gpus(replace(without_switches("hgx-a100-8"), pci=readings.pci), name="NVIDIA X1")
    assert switches and unhealthy(discover(dark, Method.NVML)).keys() == set(ALL)
    unknown = discover(replace(dark, pci=without_switches("hgx-a100-8").pci), Method.NVML)
    assert not unknown.spec.nvlink.switched and unhealthy(unknown) == {}


def test_one_lost_switch_of_several_is_seen_at_the_first_reading() -> None:
    healthy, found = discover(machine("hgx-a100-8"), Method.NVML), discover(machine("hgx-a100-8", 5), Method.NVML)
    assert found.spec.nvlink == healthy.spec.nvlink
    assert {(link.gpu, link.link) for link in found.links_down} == {(gpu, link) for gpu in ALL for link in (5, 11)}
    assert unhealthy(found) == {}


def off(gpu: GpuReading) -> GpuReading:
    return replace(gpu, links=tuple(LinkReading(link=link.link, p2p=True, state=0) for link in gpu.links))


@pytest.mark.parametrize(
    ("profile", "facts"),
    [
        pytest.param("hgx-a100-4", {}, id="boards of four have none"),
        pytest.param("a100-pcie-4", {}, id="cards without their bridges"),
        pytest.param("hgx-a100-8", {"mig_mode": (1, 1)}, id="MIG turns NVLinks off"),
        pytest.param("hgx-a100-8", {"virtualization_mode": 1}, id="a virtual machine may be given GPUs without them"),
        pytest.param("hgx-a100-8", {"links": ()}, id="a driver that was told to use none lists none"),
    ],
)
def test_links_that_are_off_need_not_be_broken(profile: str, facts: dict[str, Any]) -> None:
    readings = without_switches(profile) if profile == "hgx-a100-8" else machine(profile)
    dark = of_gpus(replace(readings, gpus=tuple(map(off, readings.gpus))), **facts)
    if facts.get("virtualization_mode"):
        dark = replace(dark, kernel=replace(dark.kernel, has_hypervisor=True))
    found = discover(dark, Method.NVML)
    assert (unhealthy(found), fabric(found)) == ({}, None)
    assert not found.spec.nvlink.switched


def test_calls_that_failed_say_nothing_of_switches() -> None:
    readings = machine("hgx-h200")
    unread = tuple(LinkReading(link=number, errors={"p2p": "Unknown"}) for number in range(18))
    found = discover(of_gpus(readings, links=unread), Method.NVML)
    assert unhealthy(found) == {}


def test_an_export_model_has_fewer_links_than_nvml_counts() -> None:
    readings = of_gpus(machine("hgx-a100-8"), name="NVIDIA A800-SXM4-80GB")
    few = tuple(
        replace(gpu, links=tuple(link if link.link < 8 else replace(link, state=0) for link in gpu.links))
        for gpu in readings.gpus
    )
    found = discover(replace(readings, gpus=few), Method.NVML)
    assert (found.spec.nvlink.links_per_gpu, found.links_down) == ([8] * 8, ())


def test_switches_that_go_while_the_agent_looks() -> None:
    lived = remembered(machine("hgx-h200"), without_switches("hgx-h200"))
    found = discover(lived, Method.NVML)
    assert found.spec.nvlink == discover(machine("hgx-h200"), Method.NVML).spec.nvlink
    assert unhealthy(found).keys() == set(ALL)
