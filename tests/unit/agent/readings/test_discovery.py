"""What a NodeTopology says of a machine; of the recorded one, against what nvidia-smi printed there."""

from pathlib import Path

import msgspec
import pytest

from closeknit.agent.discovery.health.machine_health import MachineFinding
from closeknit.agent.discovery.readings.readings import (
    FabricReading,
    GpuReading,
    KernelReading,
    MigDeviceReading,
    RdmaPortReading,
    RdmaReading,
    Readings,
)
from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.discovery.topology import discover
from closeknit.agent.sources.recorded import RecordedSource
from closeknit.agent.sources.simulated import load_profile
from closeknit.api.nodetopology import Confidence, Method, Support
from closeknit.api.nodetopology_status import Health, NodeTopologyStatus
from closeknit.api.reasons import MachineConditionType
from closeknit.machine.product import product
from closeknit.machine.published_labels import node_labels

DUMPS = Path(__file__).parents[3] / "fixtures" / "dumps"
replace = msgspec.structs.replace


@pytest.fixture
def recorded() -> Readings:
    return RecordedSource(DUMPS / "hgx-h200-8gpu-vm.json").read()


def simulated(profile: str) -> Readings:
    return readings_of(load_profile(profile), "node-1")


def test_a_real_gpu_whose_nvlinks_are_off_has_none_and_is_healthy() -> None:
    found = discover(RecordedSource(DUMPS / "h100-1gpu-vm.json").read(), Method.RECORDED)
    assert (found.spec.gpus[0].product, found.spec.gpus[0].memory_bytes) == ("NVIDIA-H100-80GB-HBM3", 85_520_809_984)
    assert (found.spec.nvlink.switched, found.spec.nvlink.generation, found.spec.nvlink.pairs) == (False, None, [])
    assert (found.gpus, [finding.message for finding in found.findings]) == ((), ["read: 1 GPU and 0 RDMA ports"])
    labels = node_labels(found.spec, NodeTopologyStatus())
    assert (labels["closeknit.dev/nvlink.kind"], labels["closeknit.dev/nvswitch"]) == ("none", "false")


def test_recorded_machine(recorded: Readings) -> None:
    found = discover(recorded, Method.RECORDED)
    assert found.spec.source.wire() == {
        "method": "Recorded",
        "driverVersion": "580.159.04",
        "cudaVersion": "13.0",
        "kernelModule": "Open",
        "virtualized": True,
        "pcieConfidence": "Low",
        "topologyConfidence": "High",
    }
    assert found.spec.gpus[0].wire() == {
        "index": 0,
        "uuid": "GPU-00000000-0000-4000-8000-000000000000",
        "minor": 0,
        "pciAddress": "0000:00:06.0",
        "product": "NVIDIA-H200",
        "architecture": "Hopper",
        "computeCapability": "9.0",
        "memoryBytes": 150754820096,
        "mig": {"mode": "Disabled", "devices": []},
        "pcieGeneration": 5,
        "pcieWidth": 16,
    }
    assert found.spec.nvlink.domain is None
    assert found.spec.pcie.levels[0] == "X PHB PHB PHB PHB PHB PHB PHB"
    assert found.spec.capabilities.wire() == {"gpuDirectP2P": True}
    assert (found.gpus, found.nics, found.links_down) == ((), (), ())
    assert [(finding.type, finding.status) for finding in found.findings] == [
        ("Ready", "True"),
        ("FabricReady", "True"),
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H200", "NVIDIA-H200"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB"),
        ("Tesla V100-SXM2-32GB (rev. 2)", "Tesla-V100-SXM2-32GB-rev.-2"),
        ("NVIDIA " + "X" * 80, "NVIDIA-" + "X" * 56),
        ("", None),
        (None, None),
    ],
)
def test_product(name: str | None, expected: str | None) -> None:
    assert product(name) == expected


def test_levels_come_from_nvml_where_there_is_no_sysfs() -> None:
    whole = simulated("dgx1-v100")
    blind = discover(replace(whole, pci=()), Method.NVML).spec
    assert blind.pcie.levels == discover(whole, Method.NVML).spec.pcie.levels
    assert blind.source.pcie_confidence is None
    assert blind.gpus[0].numa_node is None
    assert all(nic.gpu_levels == [] for nic in blind.nics or ())


def test_levels_are_absent_as_a_whole_where_one_is_unknown() -> None:
    whole = simulated("dgx1-v100")
    pairs = (replace(whole.pairs[0], common_ancestor=None), *whole.pairs[1:])
    assert discover(replace(whole, pci=(), pairs=pairs), Method.NVML).spec.pcie.levels == []


@pytest.mark.parametrize(
    ("hypervisor", "mode", "virtualized", "confidence"),
    [
        pytest.param(False, 0, False, Confidence.HIGH, id="bare metal"),
        pytest.param(True, 0, True, Confidence.HIGH, id="a virtual machine that shows its bridges"),
        pytest.param(None, 1, True, Confidence.HIGH, id="passthrough, told by NVML alone"),
        pytest.param(None, None, None, Confidence.HIGH, id="nobody says"),
    ],
)
def test_virtualized(
    hypervisor: bool | None, mode: int | None, virtualized: bool | None, confidence: Confidence
) -> None:
    whole = simulated("hgx-h200")
    gpus = tuple(replace(gpu, virtualization_mode=mode) for gpu in whole.gpus)
    kernel = replace(whole.kernel, has_hypervisor=hypervisor)
    source = discover(replace(whole, gpus=gpus, kernel=kernel), Method.NVML).spec.source
    assert (source.virtualized, source.pcie_confidence) == (virtualized, confidence)


def test_a_gpu_that_differs_says_so_itself() -> None:
    whole = simulated("pcie-bridges-8")
    slow = tuple(replace(link, speed_mb_s=7000, version=2) for link in whole.gpus[7].links)
    spec = discover(replace(whole, gpus=(*whole.gpus[:7], replace(whole.gpus[7], links=slow))), Method.NVML).spec
    assert (spec.nvlink.generation, spec.nvlink.link_bandwidth_gb_s) == (3, 14.062)
    assert (spec.gpus[7].nvlink_generation, spec.gpus[7].link_bandwidth_gb_s) == (2, 7.0)
    assert (spec.gpus[0].nvlink_generation, spec.gpus[0].link_bandwidth_gb_s) == (None, None)


def lost(index: int) -> GpuReading:
    return GpuReading(index=index, errors={"handle": "GpuIsLost"})


def test_a_lost_gpu_whose_place_is_not_known_is_left_out_and_named() -> None:
    whole = simulated("hgx-a100-4")
    gpus = (*whole.gpus[:3], lost(3))
    found = discover(replace(whole, gpus=gpus, pci=()), Method.NVML)
    assert [gpu.index for gpu in found.spec.gpus] == [0, 1, 2]
    assert [gpu.index for gpu in found.gpus] == [3]
    assert found.findings[0] == MachineFinding(
        MachineConditionType.READY,
        "True",
        "PartlyRead",
        "read: 3 GPUs; not GPU 3 (GpuIsLost). Where GPU 3 sits is not known, so it is not listed.",
    )


def test_a_gpu_that_went_while_it_was_read_keeps_its_facts() -> None:
    whole = simulated("hgx-a100-4")
    gone = replace(whole.gpus[1], links=(), errors={"handle": "GpuIsLost", "minor": "GpuIsLost"})
    found = discover(replace(whole, gpus=(whole.gpus[0], gone, *whole.gpus[2:])), Method.NVML)
    assert found.spec.gpus[1].uuid == whole.gpus[1].uuid
    assert [gpu.index for gpu in found.gpus] == [1]


def test_without_permission_a_gpu_is_unhealthy_by_that_name() -> None:
    whole = simulated("hgx-a100-4")
    forbidden = GpuReading(index=0, errors={"handle": "NoPermission"})
    found = discover(replace(whole, gpus=(forbidden, *whole.gpus[1:])), Method.NVML)
    assert [(gpu.index, gpu.state, gpu.reasons) for gpu in found.gpus] == [(0, Health.UNHEALTHY, ["NoPermission"])]


def test_a_fabric_that_is_not_ready_makes_its_gpus_unusable() -> None:
    whole = simulated("hgx-h200")
    pending = FabricReading(state=2, status=0, cluster_uuid="0" * 32, clique_id=0)
    gpus = tuple(replace(gpu, fabric=pending) if gpu.index in (1, 5) else gpu for gpu in whole.gpus)
    found = discover(replace(whole, gpus=gpus), Method.NVML)
    assert [(gpu.index, gpu.state, gpu.reasons) for gpu in found.gpus] == [
        (1, Health.UNHEALTHY, ["FabricNotReady"]),
        (5, Health.UNHEALTHY, ["FabricNotReady"]),
    ]
    assert found.findings[1] == MachineFinding(
        MachineConditionType.FABRIC_READY,
        "False",
        "FabricNotReady",
        "NVSwitches do not join GPU 1, 5; is the fabric manager running?",
    )


def test_mig_devices_and_a_mode_that_waits_for_a_reset() -> None:
    whole = simulated("hgx-h200")
    device = MigDeviceReading(uuid="MIG-1", name="NVIDIA H200 MIG 1g.18gb", memory_mib=16384)
    nameless = MigDeviceReading(uuid="MIG-2", errors={"name": "NotSupported"})
    split = replace(whole.gpus[0], mig_mode=(1, 1), mig_devices=(device, nameless))
    pending = replace(whole.gpus[1], mig_mode=(0, 1))
    found = discover(replace(whole, gpus=(split, pending, *whole.gpus[2:])), Method.NVML)
    assert found.spec.gpus[0].mig is not None
    assert found.spec.gpus[0].mig.wire() == {
        "mode": "Enabled",
        "devices": [{"uuid": "MIG-1", "profile": "1g.18gb", "memoryBytes": 17179869184}],
    }
    assert [(gpu.index, gpu.reasons) for gpu in found.gpus] == [(1, ["MIGModePending"])]


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        pytest.param(KernelReading(has_peer_memory=True), Support.SUPPORTED, id="peer memory"),
        pytest.param(
            KernelReading(has_peer_memory=False, nvidia_version="Open Kernel Module", kernel_release="5.12.0"),
            Support.LIKELY,
            id="open module on a kernel with DMA-BUF",
        ),
        pytest.param(
            KernelReading(has_peer_memory=False, nvidia_version="Open Kernel Module", kernel_release="5.4.0-26"),
            Support.UNSUPPORTED,
            id="open module on an old kernel",
        ),
        pytest.param(
            KernelReading(has_peer_memory=False, nvidia_version="Kernel Module", kernel_release="6.8.0"),
            Support.UNSUPPORTED,
            id="proprietary module",
        ),
        pytest.param(KernelReading(has_peer_memory=False, kernel_release="6.8.0"), None, id="unread module"),
    ],
)
def test_gpu_direct_rdma(kernel: KernelReading, expected: Support | None) -> None:
    assert discover(Readings(kernel=kernel), Method.NVML).spec.capabilities.gpu_direct_rdma is expected


def port(number: int = 1, state: str | None = "4: ACTIVE", layer: str = "InfiniBand") -> RdmaPortReading:
    return RdmaPortReading(port=number, state=state, link_layer=layer, rate="400 Gb/sec (4X NDR)")


def adapter(*ports: RdmaPortReading, node_type: str = "1: CA", driver: str = "mlx5_core") -> RdmaReading:
    return RdmaReading(name="mlx5_0", node_type=node_type, driver=driver, ports=ports)


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        pytest.param(adapter(port()), ["InfiniBand Active 400.0"], id="InfiniBand"),
        pytest.param(adapter(port(layer="Ethernet")), ["RoCE Active 400.0"], id="RoCE"),
        pytest.param(adapter(port(layer="Ethernet"), node_type="4: RNIC"), ["iWARP Active 400.0"], id="iWARP"),
        pytest.param(
            adapter(port(layer="Unspecified"), node_type="7: unspecified", driver="efa"), ["EFA Active 400.0"], id="EFA"
        ),
        pytest.param(adapter(port(state="1: DOWN")), ["InfiniBand Down None"], id="a port that is down"),
        pytest.param(adapter(port(1), port(2)), ["InfiniBand Active 400.0"] * 2, id="two ports"),
        pytest.param(replace(adapter(port()), is_switch_management=True), [], id="an NVSwitch's own"),
        pytest.param(adapter(port(state=None)), [], id="a port of unread state"),
        pytest.param(adapter(port(layer="Unspecified")), [], id="a port of unknown kind"),
    ],
)
def test_nics(device: RdmaReading, expected: list[str]) -> None:
    nics = discover(Readings(rdma=(device,)), Method.NVML).spec.nics or ()
    assert [f"{nic.transport} {nic.state} {nic.rate_gb_per_s}" for nic in nics] == expected


def test_nics_are_in_the_order_of_their_numbers() -> None:
    devices = tuple(
        RdmaReading(name=name, node_type="1: CA", ports=(port(),)) for name in ("mlx5_10", "mlx5_2", "mlx5_bond_0")
    )
    nics = discover(Readings(rdma=devices), Method.NVML).spec.nics or ()
    assert [nic.name for nic in nics] == ["mlx5_2", "mlx5_10", "mlx5_bond_0"]


def test_virtual_functions_are_not_counted_beside_their_nic() -> None:
    readings = simulated("hgx-h200")
    functions = [
        replace(device, name=f"{device.name}_{number}", is_virtual_function=True)
        for device in readings.rdma
        for number in range(8)
    ]
    with_functions = replace(readings, rdma=(*readings.rdma, *functions))
    assert discover(with_functions, Method.NVML) == discover(readings, Method.NVML)


def test_a_link_that_does_not_say_where_it_leads_makes_no_switch_of_a_mesh() -> None:
    readings = simulated("dgx1-v100")
    first = readings.gpus[0]
    silent = replace(first.links[0], remote_bus_id=None, errors={"remote_bus_id": "Unknown"})
    changed = replace(readings, gpus=(replace(first, links=(silent, *first.links[1:])), *readings.gpus[1:]))
    found = discover(changed, Method.NVML).spec.nvlink
    assert (found.switched, len(found.pairs)) == (False, 15)


def test_a_device_with_one_port_down_is_not_down() -> None:
    readings = simulated("hgx-h200")
    device = readings.rdma[0]
    ports = (replace(device.ports[0], port=1), replace(device.ports[0], port=2, state="1: DOWN"))
    one = discover(replace(readings, rdma=(replace(device, ports=ports),)), Method.NVML)
    assert ([str(nic.state) for nic in one.spec.nics or ()], one.nics) == (["Active", "Down"], ())
    both = tuple(replace(port, state="1: DOWN") for port in ports)
    none = discover(replace(readings, rdma=(replace(device, ports=both),)), Method.NVML)
    assert [nic.name for nic in none.nics] == [device.name]


@pytest.mark.parametrize(
    ("reading", "absent"),
    [
        ({"max_pcie_generation": 0}, {"pcieGeneration"}),
        ({"max_pcie_width": 255}, {"pcieWidth"}),
        ({"max_pcie_generation": 99, "memory_bytes": -1}, {"pcieGeneration", "memoryBytes"}),
    ],
)
def test_a_reading_that_cannot_be_true_costs_that_fact(
    recorded: Readings, reading: dict[str, int], absent: set[str]
) -> None:
    odd = msgspec.structs.replace(recorded.gpus[3], **reading)
    whole = discover(recorded, Method.RECORDED).spec
    found = discover(replace(recorded, gpus=(*recorded.gpus[:3], odd, *recorded.gpus[4:])), Method.RECORDED).spec
    assert set(whole.gpus[3].wire()) - set(found.gpus[3].wire()) == absent
    assert found.gpus[:3] == whole.gpus[:3]
