"""Each machine profile against what is known of such machines: links, NUMA nodes, and the GPUs nearest to each NIC."""

import pytest

from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.discovery.topology import discover
from closeknit.agent.sources.simulated import load_profile, profile_names
from closeknit.api.nodetopology import Method, Nic, NodeTopologySpec, Nvlink
from closeknit.machine.checks import LEVELS

# Direct links as pair:links, or links into switches; NUMA nodes; per NIC its nearest level, and the GPUs at it. As seen
# in nvidia-smi topo -m of such machines, or documented by their vendor: each profile's notes say which.
FACTS = {
    "a100-pcie-4": (
        "0-1:12 2-3:12",
        "0 0 1 1",
        "",
    ),
    "a100-pcie-4-crossed": (
        "0-3:12 1-2:12",
        "0 0 1 1",
        "NODE 2,3",
    ),
    "ac922-2": (
        "",
        "0 8",
        "NODE 0; NODE 0; NODE 1; NODE 1",
    ),
    "ac922-4": (
        "0-1:3 2-3:3",
        "0 0 8 8",
        "NODE 0,1; NODE 0,1; NODE 2,3; NODE 2,3",
    ),
    "ac922-6": (
        "0-1:2 0-2:2 1-2:2 3-4:2 3-5:2 4-5:2",
        "0 0 0 8 8 8",
        "NODE 0,1,2; NODE 0,1,2; NODE 3,4,5; NODE 3,4,5",
    ),
    "dgx-h100": (
        "switched 18",
        "0 0 0 0 1 1 1 1",
        "PXB 0; PXB 1; PXB 2; PXB 3; PXB 4; PXB 5; PXB 6; PXB 7",
    ),
    "dgx-station-a100": (
        "0-1:4 0-2:4 0-4:4 1-2:4 1-4:4 2-4:4",
        "0 0 0 0",
        "",
    ),
    "dgx-station-v100": (
        "0-1:1 0-2:1 0-3:2 1-2:2 1-3:1 2-3:1",
        "0 0 0 0",
        "",
    ),
    "dgx1-p100": (
        "0-1:1 0-2:1 0-3:1 0-4:1 1-2:1 1-3:1 1-5:1 2-3:1 2-6:1 3-7:1 4-5:1 4-6:1 4-7:1 5-6:1 5-7:1 6-7:1",
        "0 0 0 0 1 1 1 1",
        "PIX 0,1; PIX 2,3; PIX 4,5; PIX 6,7",
    ),
    "dgx1-v100": (
        "0-1:1 0-2:1 0-3:2 0-4:2 1-2:2 1-3:1 1-5:2 2-3:2 2-6:1 3-7:1 4-5:1 4-6:1 4-7:2 5-6:2 5-7:1 6-7:2",
        "0 0 0 0 1 1 1 1",
        "PIX 0,1; PIX 2,3; PIX 4,5; PIX 6,7",
    ),
    "dgx2": (
        "switched 6",
        "0 0 0 0 0 0 0 0 1 1 1 1 1 1 1 1",
        "PIX 0,1; PIX 2,3; PIX 4,5; PIX 6,7; PHB 0,1,2,3,4,5,6,7; PIX 8,9; PIX 10,11; PIX 12,13; PIX "
        "14,15; PHB 8,9,10,11,12,13,14,15",
    ),
    "gb200-nvl36-tray": (
        "switched 18",
        "0 0 1 1",
        "SYS 0,1,2,3; SYS 0,1,2,3; SYS 0,1,2,3; SYS 0,1,2,3",
    ),
    "gb200-tray": (
        "switched 18",
        "0 0 1 1",
        "SYS 0,1,2,3; SYS 0,1,2,3; SYS 0,1,2,3; SYS 0,1,2,3",
    ),
    "gb300-tray": (
        "switched 18",
        "0 0 1 1",
        "PXB 1; PXB 0; PXB 3; PXB 2",
    ),
    "gh200": (
        "",
        "0",
        "NODE 0",
    ),
    "gh200-quad": (
        "0-1:6 0-2:6 0-3:6 1-2:6 1-3:6 2-3:6",
        "0 1 2 3",
        "",
    ),
    "h100-nvl-8": (
        "0-1:12 2-3:12 4-5:12 6-7:12",
        "0 0 0 0 1 1 1 1",
        "PIX 0,1; PIX 2,3; PIX 4,5; PIX 6,7",
    ),
    "h200-nvl-4": (
        "0-1:6 0-2:6 0-3:6 1-2:6 1-3:6 2-3:6",
        "0 0 1 1",
        "PIX 0; PIX 1; PIX 2; PIX 3",
    ),
    "hgx-a100-4": (
        "0-1:4 0-2:4 0-3:4 1-2:4 1-3:4 2-3:4",
        "3 2 1 0",
        "",
    ),
    "hgx-a100-8": (
        "switched 12",
        "3 3 1 1 7 7 5 5",
        "PXB 0,1; PXB 0,1; PXB 2,3; PXB 2,3; PXB 4,5; PXB 4,5; PXB 6,7; PXB 6,7",
    ),
    "hgx-a800-8": (
        "switched 8",
        "0 0 0 0 1 1 1 1",
        "PIX 0,1; PIX 0,1; PIX 2,3; PIX 2,3; PIX 4,5; PIX 4,5; PIX 6,7; PIX 6,7",
    ),
    "hgx-b200": (
        "switched 18",
        "0 0 0 0 1 1 1 1",
        "PIX 0; PIX 1; PIX 2; PIX 3; PIX 4; PIX 5; PIX 6; PIX 7",
    ),
    "hgx-b300": (
        "switched 18",
        "0 0 0 0 1 1 1 1",
        "PXB 0; PXB 1; PXB 2; PXB 3; PXB 4; PXB 5; PXB 6; PXB 7",
    ),
    "hgx-h100-4": (
        "0-1:6 0-2:6 0-3:6 1-2:6 1-3:6 2-3:6",
        "0 0 1 1",
        "PIX 0; PIX 1; PIX 2; PIX 3",
    ),
    "hgx-h200": (
        "switched 18",
        "0 0 0 0 1 1 1 1",
        "PIX 0; PIX 1; PIX 2; PIX 3; PIX 4; PIX 5; PIX 6; PIX 7",
    ),
    "k80-8": (
        "",
        "0 0 0 0 1 1 1 1",
        "PHB 4,5,6,7",
    ),
    "l40s-4": (
        "",
        "0 0 0 0",
        "",
    ),
    "p3-8xlarge": (
        "0-1:1 0-2:1 0-3:2 1-2:2 1-3:1 2-3:2",
        "- - - -",
        "",
    ),
    "p40-8": (
        "",
        "0 0 0 0 0 0 0 0",
        "SYS 0,1,2,3,4,5,6,7",
    ),
    "p4d": (
        "switched 12",
        "0 0 0 0 1 1 1 1",
        "PIX 0,1; PIX 2,3; PIX 4,5; PIX 6,7",
    ),
    "pcie-10": (
        "",
        "0 0 0 0 0 0 0 0 0 0",
        "PXB 0,1,2,3,4,5,6,7,8,9",
    ),
    "pcie-8": (
        "",
        "0 0 0 0 1 1 1 1",
        "PIX 0,1; PIX 4,5",
    ),
    "pcie-bridges-8": (
        "0-1:4 2-3:4 4-5:4 6-7:4",
        "0 0 0 0 1 1 1 1",
        "NODE 0,1,2,3",
    ),
    "rtx3090-2": (
        "0-1:4",
        "0 0",
        "",
    ),
    "rtx4090-8": (
        "",
        "0 1 2 3 4 5 6 7",
        "",
    ),
    "v100-8-alternative": (
        "0-1:1 0-2:2 0-3:1 0-7:2 1-2:1 1-3:2 1-6:2 2-3:2 2-5:1 3-4:1 4-5:2 4-6:2 4-7:1 5-6:1 5-7:2 6-7:1",
        "0 0 0 0 1 1 1 1",
        "PIX 2,3; PIX 6,7",
    ),
}


def spec_of(profile: str) -> NodeTopologySpec:
    return discover(readings_of(load_profile(profile), "node-1"), Method.SIMULATED).spec


def links(nvlink: Nvlink) -> str:
    if nvlink.switched:
        return f"switched {' '.join(map(str, sorted(set(nvlink.links_per_gpu))))}"
    return " ".join(f"{pair.a}-{pair.b}:{pair.links}" for pair in nvlink.pairs)


def nearest(nic: Nic, indexes: list[int]) -> str:
    level = min(nic.gpu_levels, key=LEVELS.index)
    near = [index for index, found in zip(indexes, nic.gpu_levels, strict=True) if found == level]
    return f"{level} {','.join(map(str, near))}"


def test_every_profile_has_its_facts() -> None:
    assert sorted(FACTS) == profile_names()


@pytest.mark.parametrize("profile", FACTS)
def test_facts(profile: str) -> None:
    spec = spec_of(profile)
    numa = " ".join("-" if gpu.numa_node is None else str(gpu.numa_node) for gpu in spec.gpus)
    indexes = [gpu.index for gpu in spec.gpus]
    found = (links(spec.nvlink), numa, "; ".join(nearest(nic, indexes) for nic in spec.nics or ()))
    assert found == FACTS[profile]


@pytest.mark.parametrize("profile", [name for name in FACTS if name.startswith("ac922")])
def test_power9_links_lead_to_the_cpu_and_join_no_gpus(profile: str) -> None:
    nvlink = spec_of(profile).nvlink
    assert nvlink.cpu_links_per_gpu == [2 if profile == "ac922-6" else 3] * len(spec_of(profile).gpus)
    assert not nvlink.switched


def test_the_display_adapter_of_a_dgx_station_is_no_gpu_for_jobs() -> None:
    assert [gpu.index for gpu in spec_of("dgx-station-a100").gpus] == [0, 1, 2, 4]


def test_devices_that_manage_nvswitches_are_no_nics() -> None:
    assert [nic.name for nic in spec_of("hgx-b200").nics or ()] == [f"mlx5_{number}" for number in range(8)]


def test_a_virtual_machine_hides_its_pcie_tree() -> None:
    source = spec_of("p3-8xlarge").source
    assert (source.virtualized, source.pcie_confidence) == (True, "Low")


def test_consumer_cards_do_not_reach_each_other() -> None:
    assert spec_of("rtx4090-8").capabilities.gpu_direct_p2p is False


def test_grace_hopper_has_c2c_and_no_nvlink() -> None:
    (gpu,) = spec_of("gh200").gpus
    assert gpu.c2c is not None
    assert gpu.c2c.wire() == {"links": 10, "bandwidthGBps": 447.12}
    assert gpu.pci_address.startswith("0009:")


def test_efa_is_no_infiniband() -> None:
    assert {str(nic.transport) for nic in spec_of("p4d").nics or ()} == {"EFA"}


@pytest.mark.parametrize("profile", FACTS)
def test_a_profile_tells_its_evidence(profile: str) -> None:
    found = load_profile(profile)
    is_synthetic = found.notes.startswith("Synthetic") or "put together from" in found.notes
    assert is_synthetic == (found.evidence == "unverified")
