"""Virtual machines, capture cards and what the kernel can do, each by the readings that tell it."""

import msgspec
import pytest

from closeknit.agent.discovery.machine.capabilities import capabilities
from closeknit.agent.discovery.machine.pcie_levels import between_gpus, confidence
from closeknit.agent.discovery.machine.video_capture import capture_devices
from closeknit.agent.discovery.machine.virtualization import virtualized
from closeknit.agent.discovery.readings.readings import (
    GpuReading,
    KernelReading,
    PairReading,
    PciReading,
    RdmaReading,
    Readings,
)
from closeknit.api.nodetopology import MAX_CAPTURE_DEVICES, Confidence, RdmaNamespaces, Support

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580"
changed = msgspec.structs.replace


def device(
    path: str, vendor: str = "0xf1d0", device_class: str | None = "0x040000", numa: int | None = 0
) -> PciReading:
    return PciReading(
        address=path.rpartition("/")[2],
        path=f"/sys/devices/{path}",
        vendor=vendor,
        device="0xeb0e",
        device_class=device_class,
        numa_node=numa,
    )


CARD = device("pci0000:00/0000:00:01.0/0000:01:00.0")
GPUS = (
    device("pci0000:00/0000:00:02.0/0000:02:00.0", "0x10de"),
    device("pci0000:40/0000:40:02.0/0000:41:00.0", "0x10de", numa=None),
)


@pytest.mark.parametrize(
    ("vendor", "device_class", "expected"),
    [
        pytest.param("0xf1d0", "0x040000", "AJA eb0e", id="AJA"),
        pytest.param("0xbdbd", "0x048000", "Blackmagic eb0e", id="Blackmagic"),
        pytest.param("0x1b66", "0x058000", None, id="the memory on a card"),
        pytest.param("0x102b", "0x040000", "Matrox eb0e", id="Matrox video"),
        pytest.param("0x102b", "0x030000", None, id="Matrox graphics, as servers' management processors have"),
        pytest.param("0xbdbd", "0x040300", None, id="the audio of a card"),
        pytest.param("0xbdbd", "0x060400", None, id="the bridge on a card"),
        pytest.param("0x8086", "0x040000", None, id="a video device of another vendor"),
        pytest.param("0xf1d0", None, None, id="class unread"),
    ],
)
def test_capture_cards_by_vendor_and_class(vendor: str, device_class: str | None, expected: str | None) -> None:
    card = changed(CARD, vendor=vendor, device_class=device_class)
    found = capture_devices(Readings(pci=(card,)), GPUS[:1])
    assert [(each.product, each.gpu_levels) for each in found] == ([] if expected is None else [(expected, ["PHB"])])


def test_capture_cards_are_by_address_and_no_more_than_the_object_holds() -> None:
    cards = [device(f"pci0000:00/0000:00:01.0/0000:{bus:02x}:00.0") for bus in range(50, 0, -1)]
    odd = changed(CARD, address="!")
    found = capture_devices(Readings(pci=(odd, *cards)), [])
    assert [card.pci_address for card in found] == [f"0000:{bus:02x}:00.0" for bus in range(1, MAX_CAPTURE_DEVICES + 1)]


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        pytest.param(Readings(pci=(CARD,), lists_capture_cards=True), True, id="one is there"),
        pytest.param(Readings(pci=GPUS[:1], lists_capture_cards=True), False, id="none is"),
        pytest.param(Readings(pci=GPUS[:1]), None, id="nobody looked"),
    ],
)
def test_gpu_direct_video(readings: Readings, expected: bool | None) -> None:
    assert capabilities(readings).gpu_direct_video is expected


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        pytest.param(KernelReading(has_peer_memory=True), Support.SUPPORTED, id="peer memory"),
        pytest.param(
            KernelReading(has_peer_memory=False, nvidia_version=OPEN, kernel_release="5.12.0"),
            Support.LIKELY,
            id="5.12",
        ),
        pytest.param(
            KernelReading(has_peer_memory=False, nvidia_version=OPEN, kernel_release="5.4.0-1"),
            Support.UNSUPPORTED,
            id="an old kernel",
        ),
        pytest.param(
            KernelReading(has_peer_memory=False, nvidia_version="NVRM version: 535", kernel_release="6.8.0"),
            Support.UNSUPPORTED,
            id="the proprietary module",
        ),
        pytest.param(KernelReading(has_peer_memory=False, kernel_release="6.8.0"), None, id="no module's version"),
        pytest.param(
            KernelReading(has_peer_memory=False, nvidia_version=OPEN, kernel_release="9" * 5000), None, id="no release"
        ),
        pytest.param(KernelReading(nvidia_version=OPEN, kernel_release="6.8.0"), None, id="peer memory unread"),
    ],
)
def test_gpu_direct_rdma(kernel: KernelReading, expected: Support | None) -> None:
    assert capabilities(Readings(kernel=kernel)).gpu_direct_rdma is expected


@pytest.mark.parametrize(("mode", "expected"), [("Y", "Shared"), ("N", "Exclusive"), ("?", None), (None, None)])
def test_rdma_namespaces(mode: str | None, expected: str | None) -> None:
    found = capabilities(Readings(kernel=KernelReading(rdma_netns_mode=mode))).rdma_namespaces
    assert found == (None if expected is None else RdmaNamespaces(expected))


def test_the_policies_of_the_kubelets_managers() -> None:
    kernel = KernelReading(
        topology_manager_policy="restricted", cpu_manager_policy="static", memory_manager_policy="Static"
    )
    found = capabilities(Readings(kernel=kernel))
    assert (found.topology_manager_policy, found.cpu_manager_policy) == ("restricted", "static")
    assert found.memory_manager_policy == "Static"


def gpus(*modes: int | None) -> tuple[GpuReading, ...]:
    return tuple(GpuReading(index=index, virtualization_mode=mode) for index, mode in enumerate(modes))


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        pytest.param(Readings(kernel=KernelReading(has_hypervisor=True)), True, id="the CPU says so"),
        pytest.param(Readings(gpus=gpus(0, 1)), True, id="the driver of one GPU says so"),
        pytest.param(Readings(gpus=gpus(1), kernel=KernelReading(has_hypervisor=False)), True, id="one of two says so"),
        pytest.param(
            Readings(kernel=KernelReading(has_hypervisor=False, system_vendor="QEMU")), False, id="the CPU denies it"
        ),
        pytest.param(Readings(kernel=KernelReading(product_name="KVM")), True, id="the firmware of a guest on Arm"),
        pytest.param(
            Readings(kernel=KernelReading(system_vendor="Amazon EC2", product_name="c7g.metal")), None, id="EC2 metal"
        ),
        pytest.param(Readings(gpus=gpus(0, 0)), False, id="the driver of every GPU denies it"),
        pytest.param(Readings(gpus=gpus(0, None)), None, id="one GPU does not tell"),
        pytest.param(Readings(kernel=KernelReading(system_vendor="NVIDIA")), None, id="nobody tells"),
    ],
)
def test_virtual_machines(readings: Readings, expected: bool | None) -> None:
    assert virtualized(readings) is expected


TWO = (GpuReading(index=0), GpuReading(index=1))


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        pytest.param(40, "X NODE", id="NVML knows what the tree does not"),
        pytest.param(None, "X SYS", id="neither knows: what nvidia-smi prints then"),
        pytest.param(7, "X SYS", id="a number that NVML does not have"),
    ],
)
def test_of_two_host_bridges_without_numa_nodes_nvml_tells(told: int | None, expected: str) -> None:
    readings = Readings(gpus=TWO, pairs=(PairReading(a=0, b=1, common_ancestor=told),))
    assert between_gpus(readings, TWO, GPUS)[0] == expected
    assert confidence(readings, False, TWO, GPUS) is Confidence.HIGH


def test_two_gpus_at_one_place_have_no_level() -> None:
    assert between_gpus(Readings(gpus=TWO), TWO, [GPUS[0], GPUS[0]]) == []


def test_a_flat_nic_of_a_guest_is_not_trusted_either() -> None:
    flat = device("pci0000:00/0000:00:07.0", "0x15b3", "0x020000")
    readings = Readings(pci=(flat,), rdma=(RdmaReading(name="mlx5_0", address=flat.address),))
    assert confidence(readings, True, TWO, GPUS) is Confidence.LOW
    assert confidence(readings, False, TWO, GPUS) is Confidence.HIGH
