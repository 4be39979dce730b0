"""The labels of every machine that we know."""

import re
from pathlib import Path

import pytest

from closeknit.agent.discovery.publication import publication
from closeknit.agent.discovery.readings.readings import Readings
from closeknit.agent.discovery.simulated.profile import NO_FAULTS, Faults, LinkFault
from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.discovery.topology import discover
from closeknit.agent.sources.recorded import RecordedSource
from closeknit.agent.sources.simulated import load_profile, profile_names
from closeknit.api.nodetopology import Method
from closeknit.api.nodetopology_status import NodeTopologyStatus

DUMPS = Path(__file__).parents[2] / "fixtures" / "dumps"
NOW = "2026-11-21T12:00:00Z"


def labels(readings: Readings) -> dict[str, str]:
    found = discover(readings, Method.SIMULATED)
    wanted = publication(found, NodeTopologyStatus(), None, "0.1.0", NOW)
    return {key.removeprefix("closeknit.dev/"): value for key, value in wanted.labels.items()}


def simulated(profile: str, faults: Faults = NO_FAULTS) -> dict[str, str]:
    return labels(readings_of(load_profile(profile), "node-1", faults))


# Of machines that differ in their labels: product, count, GiB, architecture
GPUS = {
    "ac922-4": ("Tesla-V100-SXM2-16GB", "4", "15", "Volta"),
    "dgx1-p100": ("Tesla-P100-SXM2-16GB", "8", "15", "Pascal"),
    "dgx1-v100": ("Tesla-V100-SXM2-32GB", "8", "31", "Volta"),
    "dgx2": ("Tesla-V100-SXM3-32GB", "16", "31", "Volta"),
    "gb200-tray": ("NVIDIA-GB200", "4", "185", "Blackwell"),
    "gh200-quad": ("NVIDIA-GH200-120GB", "4", "95", "Hopper"),
    "hgx-a100-4": ("NVIDIA-A100-SXM4-40GB", "4", "40", "Ampere"),
    "hgx-a100-8": ("NVIDIA-A100-SXM4-80GB", "8", "80", "Ampere"),
    "hgx-b200": ("NVIDIA-B200", "8", "179", "Blackwell"),
    "hgx-h200": ("NVIDIA-H200", "8", "140", "Hopper"),
    "p4d": ("NVIDIA-A100-SXM4-40GB", "8", "40", "Ampere"),
    "pcie-8": ("NVIDIA-L40S", "8", "44", "Ada"),
    "pcie-bridges-8": ("NVIDIA-RTX-A6000", "8", "47", "Ampere"),
}
# kind, generation, links per GPU, GB/s, islands, largest island, switches
NVLINK = {
    "ac922-4": ("bridge", "2", "3", "77", "2-2", "2", "false"),
    "dgx1-p100": ("mesh", "1", "4", "80", "8", "8", "false"),
    "dgx1-v100": ("mesh", "2", "6", "155", "8", "8", "false"),
    "dgx2": ("switch", "2", "6", "155", "16", "16", "true"),
    "gb200-tray": ("switch", "5", "18", "956", "4", "4", "true"),
    "gh200-quad": ("mesh", "4", "18", "478", "4", "4", "false"),
    "hgx-a100-4": ("mesh", "3", "12", "300", "4", "4", "false"),
    "hgx-a100-8": ("switch", "3", "12", "300", "8", "8", "true"),
    "hgx-b200": ("switch", "5", "18", "956", "8", "8", "true"),
    "hgx-h200": ("switch", "4", "18", "478", "8", "8", "true"),
    "p4d": ("switch", "3", "12", "300", "8", "8", "true"),
    "pcie-8": ("none", None, None, None, None, None, "false"),
    "pcie-bridges-8": ("bridge", "3", "4", "56", "2-2-2-2", "2", "false"),
}
# transport, NICs, Gb/s, GPUDirect RDMA
RDMA = {
    "ac922-4": ("infiniband", "4", "400", "supported"),
    "dgx1-p100": ("infiniband", "4", "400", "supported"),
    "dgx1-v100": ("infiniband", "4", "400", "supported"),
    "dgx2": ("infiniband", "10", "1000", "supported"),
    "gb200-tray": ("infiniband", "4", "1600", "supported"),
    "gh200-quad": ("none", None, None, "likely"),
    "hgx-a100-4": ("none", None, None, "unsupported"),
    "hgx-a100-8": ("infiniband", "8", "1600", "supported"),
    "hgx-b200": ("infiniband", "8", "3200", "supported"),
    "hgx-h200": ("infiniband", "8", "3200", "supported"),
    "p4d": ("efa", "4", "400", "supported"),
    "pcie-8": ("roce", "2", "400", "supported"),
    "pcie-bridges-8": ("roce", "1", "100", "supported"),
}
NVLINK_LABELS = ("kind", "generation", "links-per-gpu", "gigabytes-per-second", "islands", "largest-island")


@pytest.mark.parametrize("profile", GPUS)
def test_labels_of_a_profile(profile: str) -> None:
    found = simulated(profile)
    assert tuple(found[f"gpu.{name}"] for name in ("product", "count", "memory-gib", "architecture")) == GPUS[profile]
    assert (*(found.get(f"nvlink.{name}") for name in NVLINK_LABELS), found["nvswitch"]) == NVLINK[profile]
    rdma = (found["rdma.transport"], found.get("rdma.nics"), found.get("rdma.gigabits-per-second"))
    assert (*rdma, found["gpudirect.rdma"]) == RDMA[profile]
    assert found["gpudirect.p2p"] == "true"
    assert found["gpudirect.storage"] == "false"
    assert found["health"] == "healthy"
    assert re.fullmatch("[0-9a-f]{12}", found["topology-class"])
    assert ("nvlink.domain" in found) is (profile == "gb200-tray")
    assert found.get("mig.mode") == ("disabled" if GPUS[profile][0] in MIG_CAPABLE else None)


MIG_CAPABLE = (
    "NVIDIA-A100-SXM4-40GB",
    "NVIDIA-A100-SXM4-80GB",
    "NVIDIA-B200",
    "NVIDIA-GB200",
    "NVIDIA-GH200-120GB",
    "NVIDIA-H200",
)


def test_labels_of_the_recorded_machine() -> None:
    found = labels(RecordedSource(DUMPS / "hgx-h200-8gpu-vm.json").read())
    assert len(found.pop("topology-class")) == 12
    assert found == {
        "gpu.architecture": "Hopper",
        "gpu.count": "8",
        "gpu.memory-gib": "140",
        "gpu.product": "NVIDIA-H200",
        "gpudirect.p2p": "true",
        "health": "healthy",
        "mig.mode": "disabled",
        "nvlink.generation": "4",
        "nvlink.gigabytes-per-second": "478",
        "nvlink.islands": "8",
        "nvlink.kind": "switch",
        "nvlink.largest-island": "8",
        "nvlink.links-per-gpu": "18",
        "nvswitch": "true",
        "rdma.transport": "none",
    }


@pytest.mark.parametrize("profile", profile_names())
def test_every_value_is_a_valid_label_value(profile: str) -> None:
    for key, value in simulated(profile).items():
        assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", value), key


def test_a_dead_gpu_leaves_the_others_facts_and_a_smaller_island() -> None:
    healthy, broken = simulated("hgx-h200"), simulated("hgx-h200", Faults(dead_gpus=(2,)))
    assert {key for key in healthy if healthy[key] != broken.get(key)} == {
        "health",
        "nvlink.islands",
        "nvlink.largest-island",
        "topology-class",
    }
    assert broken["nvlink.islands"] == "7"


def test_a_dead_link_makes_another_class_of_machine() -> None:
    healthy = simulated("dgx1-v100")
    broken = simulated("dgx1-v100", Faults(links_down=(LinkFault(0, 2),)))
    assert {key for key in healthy if healthy[key] != broken.get(key)} == {"health", "topology-class"}


def test_two_nodes_of_one_model_are_of_one_class() -> None:
    one = labels(readings_of(load_profile("dgx2"), "node-1"))
    other = labels(readings_of(load_profile("dgx2"), "node-2"))
    assert one == other
