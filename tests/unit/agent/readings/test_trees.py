"""Whole machines, from the files of sysfs to the words that nvidia-smi topo -m prints."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from closeknit.agent import sysfs
from closeknit.agent.discovery.readings.readings import GpuReading, PairReading, Readings
from closeknit.agent.discovery.topology import Discovery, discover
from closeknit.api.nodetopology import Confidence, Method, Transport
from closeknit.machine.checks import LEVELS, check
from harness.sysfs_machines import (
    AC922,
    AZURE,
    CONNECTX_8,
    DGX_H100,
    GB200_TRAY,
    GB300_TRAY,
    GCP,
    GH200,
    GRACE,
    HGX_B200,
    HGX_B300,
    KNOWN,
    P5,
    VIRTUAL_FUNCTION,
    Known,
    connectx_8,
    dma_function,
)
from harness.sysfs_tree import GPU, HostBridge, Machine, Slot, Tree, vital_product_data

UUID_0 = vital_product_data("c8280zmlx5_0")


def readings_of(root: Path, known: Known, pairs: tuple[PairReading, ...] = ()) -> Readings:
    tree = Tree(root, known.machine)
    errors: dict[str, str] = {}
    readings = Readings(
        gpus=tuple(GpuReading(index=index, bus_id=address) for index, address in enumerate(tree.gpus)),
        pairs=pairs,
        pci=sysfs.pci_devices(root, errors),
        rdma=sysfs.rdma_devices(root, errors),
        kernel=sysfs.kernel(root),
    )
    assert errors == {}
    return readings


def found_in(root: Path, known: Known) -> Discovery:
    return discover(readings_of(root, known), Method.NVML)


@pytest.mark.parametrize("known", KNOWN.values(), ids=KNOWN)
def test_levels_are_those_that_nvidia_smi_prints(known: Known, tmp_path: Path) -> None:
    spec = found_in(tmp_path, known).spec
    check(spec)
    rows = [[*row.split(), *(nic.gpu_levels[at] for nic in spec.nics or ())] for at, row in enumerate(spec.pcie.levels)]
    assert rows == [line.split() for line in known.printed.strip().splitlines()]


def test_numa_nodes_of_gpus_and_nics(tmp_path: Path) -> None:
    spec = found_in(tmp_path, AC922).spec
    assert [gpu.numa_node for gpu in spec.gpus] == [0, 0, 8, 8]
    assert [(nic.name, nic.numa_node) for nic in spec.nics or ()] == [
        ("mlx5_0", 0),
        ("mlx5_1", 0),
        ("mlx5_2", 8),
        ("mlx5_3", 8),
    ]


def test_pci_domains_are_kept(tmp_path: Path) -> None:
    spec = found_in(tmp_path, GB200_TRAY).spec
    assert [gpu.pci_address[:4] for gpu in spec.gpus] == ["0008", "0009", "0018", "0019"]
    assert [nic.pci_address for nic in spec.nics or ()][-1] == "0012:01:00.0"


@pytest.mark.parametrize(
    ("known", "model", "bandwidth"),
    [
        pytest.param(DGX_H100, "Intel(R) Xeon(R)", 22.0, id="the kernel's name, and the bandwidth by the model number"),
        pytest.param(GB200_TRAY, "Arm Neoverse-V2", 6.0, id="Arm prints no name"),
        pytest.param(GH200, "Arm Neoverse-V2", None, id="one socket"),
        pytest.param(AC922, "POWER9", 32.0, id="POWER9"),
        pytest.param(P5, "AMD EPYC 7742 64-Core Processor", 16.0, id="AMD"),
    ],
)
def test_cpus_and_sockets(known: Known, model: str, bandwidth: float | None, tmp_path: Path) -> None:
    pcie = found_in(tmp_path, known).spec.pcie
    assert (pcie.cpu_model, pcie.inter_socket_gb_s) == (model, bandwidth)


@pytest.mark.parametrize(
    ("known", "virtualized", "confidence"),
    [
        pytest.param(DGX_H100, False, Confidence.HIGH, id="no hypervisor"),
        pytest.param(GB200_TRAY, None, Confidence.HIGH, id="Arm does not say"),
        pytest.param(AZURE, True, Confidence.LOW, id="every device on a root bus"),
        pytest.param(P5, True, Confidence.HIGH, id="a hypervisor that shows a tree"),
    ],
)
def test_a_virtual_machine_is_told_and_a_flat_one_not_trusted(
    known: Known, virtualized: bool | None, confidence: Confidence, tmp_path: Path
) -> None:
    source = found_in(tmp_path, known).spec.source
    assert (source.virtualized, source.pcie_confidence) == (virtualized, confidence)


def test_efa_is_told_from_other_adapters(tmp_path: Path) -> None:
    nics = found_in(tmp_path, P5).spec.nics or []
    assert (len(nics), {nic.transport for nic in nics}, {nic.rate_gb_per_s for nic in nics}) == (
        32,
        {Transport.EFA},
        {100.0},
    )
    assert [nic.name for nic in nics[:3]] == ["rdmap0s0", "rdmap1s0", "rdmap2s0"]


@pytest.mark.parametrize(("known", "count"), [(AZURE, 4), (GCP, 2)])
def test_virtual_functions_of_a_guest_are_its_nics(known: Known, count: int, tmp_path: Path) -> None:
    found = found_in(tmp_path, known)
    assert [nic.virtual_function for nic in found.spec.nics or ()] == [True] * count
    assert found.nics == ()


def test_the_managers_of_nvswitches_are_no_nics_and_root_is_not_needed_to_see_it(tmp_path: Path) -> None:
    found = found_in(tmp_path, HGX_B200)
    assert [nic.name for nic in found.spec.nics or ()] == ["mlx5_0", "mlx5_2"]
    assert not list(tmp_path.rglob("vpd"))


@pytest.mark.parametrize(
    ("told", "confidence"),
    [
        pytest.param(40, Confidence.HIGH, id="NVML says the same"),
        pytest.param(None, Confidence.HIGH, id="NVML says nothing"),
        pytest.param(20, Confidence.LOW, id="NVML says otherwise"),
    ],
)
def test_nvml_checks_sysfs(told: int | None, confidence: Confidence, tmp_path: Path) -> None:
    pairs = (PairReading(a=0, b=1, common_ancestor=told),)
    spec = discover(readings_of(tmp_path, DGX_H100, pairs), Method.NVML).spec
    assert (spec.source.pcie_confidence, spec.pcie.levels[0].split()[1]) == (confidence, "NODE")


def gb300(root: Path) -> Tree:
    return Tree(root, GB300_TRAY.machine)


def nearest(root: Path) -> dict[str, list[int]]:
    """Per NIC, the GPUs at its nearest level; none where no level is known."""
    errors: dict[str, str] = {}
    readings = Readings(
        gpus=tuple(
            GpuReading(index=index, bus_id=address)
            for index, address in enumerate(("0008:06:00.0", "0009:06:00.0", "0018:06:00.0", "0019:06:00.0"))
        ),
        pci=sysfs.pci_devices(root, errors),
        rdma=sysfs.rdma_devices(root, errors),
        errors=errors,
    )
    nics = discover(readings, Method.NVML).spec.nics or []
    return {
        nic.name: [at for at, level in enumerate(nic.gpu_levels) if level == min(nic.gpu_levels, key=LEVELS.index)]
        for nic in nics
    }


def test_data_direct_pairs_as_rdma_topo_does_and_not_by_the_order_of_addresses(tmp_path: Path) -> None:
    tree = gb300(tmp_path)
    assert tree.gpus == ["0008:06:00.0", "0009:06:00.0", "0018:06:00.0", "0019:06:00.0"]
    nics = found_in(tmp_path / "again", GB300_TRAY).spec.nics or []
    assert [(nic.pci_address, nic.data_direct_address) for nic in nics] == [
        ("0000:03:00.0", "0009:03:00.0"),
        ("0002:03:00.0", "0008:03:00.0"),
        ("0010:03:00.0", "0019:03:00.0"),
        ("0012:03:00.0", "0018:03:00.0"),
        ("0006:01:00.0", None),
    ]
    assert nearest(tmp_path) == {"mlx5_0": [1], "mlx5_1": [0], "mlx5_2": [3], "mlx5_3": [2], "mlx5_4": [0, 1]}


@pytest.mark.parametrize(
    ("changed", "vpd", "unknown"),
    [
        pytest.param("0000:03:00.0", None, {"mlx5_0"}, id="the NIC's cannot be read"),
        pytest.param("0000:03:00.0", b"", {"mlx5_0"}, id="the NIC's are empty"),
        pytest.param("0000:03:00.0", vital_product_data("x")[:-9], {"mlx5_0"}, id="the NIC's are torn"),
        pytest.param("0009:03:00.0", None, {"mlx5_0"}, id="those of the DMA function cannot be read"),
        pytest.param(
            "0008:03:00.0", vital_product_data("c8280zmlx5_0"), {"mlx5_0"}, id="two DMA functions are one card's"
        ),
        pytest.param("0000:03:00.0", vital_product_data("c8280zmlx5_1"), {"mlx5_0", "mlx5_1"}, id="two cards are one"),
        pytest.param("0009:03:00.0", vital_product_data("x"), set(), id="the DMA function is another card's"),
    ],
)
def test_where_no_pair_is_told_the_levels_are_unknown(
    changed: str, vpd: bytes | None, unknown: set[str], tmp_path: Path
) -> None:
    gb300(tmp_path)
    file = tmp_path / "sys/bus/pci/devices" / changed / "vpd"
    if vpd is None:
        file.unlink()
    else:
        file.write_bytes(vpd)
    found = nearest(tmp_path)
    assert {name for name, near in found.items() if not near} == unknown
    assert found["mlx5_4"] == [0, 1]  # a BlueField has no Data Direct


def empty(*names: str) -> Callable[[Path], None]:
    def change(function: Path) -> None:
        for name in names:
            (function / name).write_text("")

    return change


def link_to_itself(function: Path) -> None:
    function.unlink()
    function.symlink_to(function.name)


@pytest.mark.parametrize(
    ("address", "change"),
    [
        pytest.param("0009:03:00.0", empty("device"), id="which device the DMA function is"),
        pytest.param("0009:03:00.0", empty("vendor"), id="whose the DMA function is"),
        pytest.param("0009:03:00.0", link_to_itself, id="the DMA function"),
        pytest.param("0000:03:00.0", empty("device", "vpd"), id="which card the NIC is"),
        pytest.param("0000:03:00.0", empty("vendor", "device", "vpd"), id="whose card the NIC is"),
    ],
)
def test_a_pair_of_which_a_file_cannot_be_read_is_unknown_and_not_the_nics_own_place(
    address: str, change: Callable[[Path], None], tmp_path: Path
) -> None:
    """By its own place the NIC would be as near to a GPU that it has nothing to do with."""
    gb300(tmp_path)
    change(tmp_path / "sys/bus/pci/devices" / address)
    assert nearest(tmp_path) == {"mlx5_0": [], "mlx5_1": [0], "mlx5_2": [3], "mlx5_3": [2], "mlx5_4": [0, 1]}


@pytest.mark.parametrize(
    ("broken", "level"),
    [
        pytest.param({"0009:00:00.0": "EIO"}, "", id="a device that may be the DMA function"),
        pytest.param({"0009:00:00.0": "ENOENT"}, "PXB", id="a device that went while it was read"),
        pytest.param({"0000:06:00.0": "EIO"}, "PXB", id="a device that is known from before"),
    ],
)
def test_without_any_dma_function_a_card_stands_where_it_is(broken: dict[str, str], level: str, tmp_path: Path) -> None:
    readings = readings_of(tmp_path, HGX_B300)
    assert "0000:06:00.0" in {each.address for each in readings.pci}
    errors = {f"pci/{address}": word for address, word in broken.items()}
    first, *_ = discover(structs.replace(readings, errors=errors), Method.NVML).spec.nics or []
    assert "".join(first.gpu_levels[:1]) == level


@pytest.mark.parametrize("others", [[], [[dma_function("mlx5_9"), [GPU]]]], ids=["none", "of another card"])
@pytest.mark.parametrize("card", [CONNECTX_8, VIRTUAL_FUNCTION])
@pytest.mark.parametrize(("product", "levels"), [("NVIDIA GB300", []), ("NVIDIA GB200", ["NODE"])])
def test_a_card_that_shows_no_dma_function_beside_a_gb300_has_no_level(
    product: str, levels: list[str], card: str, others: Sequence[Slot], tmp_path: Path
) -> None:
    own = replace(connectx_8("mlx5_0"), device=card)
    machine = Machine([HostBridge(0, [own]), HostBridge(0, [GPU, *others], domain=8)], GRACE)
    readings = readings_of(tmp_path, Known(machine, ""))
    named = structs.replace(readings, gpus=tuple(structs.replace(gpu, name=product) for gpu in readings.gpus))
    (found,) = discover(named, Method.NVML).spec.nics or []
    assert found.gpu_levels[:1] == levels


def test_without_root_no_connectx_8_has_a_place_beside_data_direct(tmp_path: Path) -> None:
    gb300(tmp_path)
    for file in tmp_path.rglob("vpd"):
        file.unlink()
    assert nearest(tmp_path) == {"mlx5_0": [], "mlx5_1": [], "mlx5_2": [], "mlx5_3": [], "mlx5_4": [0, 1]}


def test_the_two_ports_of_a_card_share_its_dma_function(tmp_path: Path) -> None:
    machine = Machine(
        [
            HostBridge(0, [[replace(connectx_8("mlx5_0"), functions=(replace(connectx_8("mlx5_1"), vpd=UUID_0),))]]),
            HostBridge(0, [[dma_function("mlx5_0"), [GPU]]], domain=8),
        ]
    )
    found = found_in(tmp_path, Known(machine, ""))
    assert [nic.gpu_levels for nic in found.spec.nics or ()] == [["PXB"], ["PXB"]]


def test_a_card_of_a_generation_to_come_is_told_by_its_uuid_alone(tmp_path: Path) -> None:
    card = replace(connectx_8("mlx5_0"), device="0x1027")
    machine = Machine([HostBridge(0, [[card]]), HostBridge(0, [[dma_function("mlx5_0"), [GPU]]], domain=8)])
    nics = found_in(tmp_path, Known(machine, "")).spec.nics or []
    assert [(nic.gpu_levels, nic.data_direct_address) for nic in nics] == [(["PXB"], "0008:03:00.0")]
