"""sysfs below any root folder: a small machine laid out as Linux does, and one where files are missing."""

from pathlib import Path

import pytest

from closeknit.agent import sysfs
from closeknit.agent.discovery.readings import PciReading, RdmaPortReading, RdmaReading


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """One GPU and one InfiniBand function below a switch, a disk controller, and an EFA-like device without NUMA."""
    bridge = tmp_path / "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0"
    gpu = device(bridge / "0000:02:00.0/0000:03:00.0", "0x10de", "0x2335", "0x030200", "0")
    nic = device(bridge / "0000:02:01.0/0000:04:00.0", "0x15b3", "0x1021", "0x020700", "0")
    disk = device(tmp_path / "sys/devices/pci0000:00/0000:00:02.0", "0x144d", "0xa80a", "0x010802", "0")
    bus = tmp_path / "sys/bus/pci/devices"
    bus.mkdir(parents=True)
    for each in (gpu, nic, disk):
        (bus / each.name).symlink_to(each)
    (nic / "net/ib0").mkdir(parents=True)
    (nic / "vpd").write_bytes(b"\x82\x2a\x00NVIDIA ConnectX-7\x90")
    driver = tmp_path / "sys/bus/pci/drivers/mlx5_core"
    driver.mkdir(parents=True)
    (nic / "driver").symlink_to(driver)
    infiniband = nic / "infiniband/mlx5_0"
    write(infiniband / "node_type", "1: CA\n")
    write(infiniband / "ports/1/state", "4: ACTIVE\n")
    write(infiniband / "ports/1/link_layer", "InfiniBand\n")
    write(infiniband / "ports/1/rate", "400 Gb/sec (4X NDR)\n")
    (infiniband / "device").symlink_to(nic)
    (tmp_path / "sys/class/infiniband").mkdir(parents=True)
    (tmp_path / "sys/class/infiniband/mlx5_0").symlink_to(infiniband)
    return tmp_path


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def device(folder: Path, vendor: str, model: str, device_class: str, numa: str) -> Path:
    for name, value in (("vendor", vendor), ("device", model), ("class", device_class), ("numa_node", numa)):
        write(folder / name, f"{value}\n")
    return folder


def test_pci_devices_with_the_bridges_above_them(root: Path) -> None:
    gpu, nic = sysfs.pci_devices(root)
    assert gpu == PciReading(
        address="0000:03:00.0",
        path="/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0",
        vendor="0x10de",
        device="0x2335",
        device_class="0x030200",
        numa_node=0,
    )
    assert nic.address == "0000:04:00.0"


def test_rdma_devices(root: Path) -> None:
    assert sysfs.rdma_devices(root) == (
        RdmaReading(
            name="mlx5_0",
            address="0000:04:00.0",
            node_type="1: CA",
            driver="mlx5_core",
            netdevs=("ib0",),
            is_switch_management=False,
            ports=(RdmaPortReading(port=1, state="4: ACTIVE", link_layer="InfiniBand", rate="400 Gb/sec (4X NDR)"),),
        ),
    )


def test_an_nvswitchs_management_device_is_known_by_its_vital_data(root: Path) -> None:
    vital = root / "sys/class/infiniband/mlx5_0/device/vpd"
    vital.write_bytes(b"\x82\x10\x00SW_MNG\x90")
    assert [device.is_switch_management for device in sysfs.rdma_devices(root)] == [True]


def test_a_virtual_function_and_a_file_that_is_not_there(root: Path) -> None:
    nic = root / "sys/class/infiniband/mlx5_0/device"
    (nic.resolve() / "physfn").mkdir()
    (nic.resolve() / "vpd").unlink()
    (found,) = sysfs.rdma_devices(root)
    assert found.is_virtual_function
    assert found.is_switch_management is None
    assert found.errors == {"is_switch_management": "ENOENT"}


def test_a_broken_numa_file_is_no_numa_node(root: Path) -> None:
    write(root / "sys/bus/pci/devices/0000:03:00.0/numa_node", "garbage")
    assert sysfs.pci_devices(root)[0].numa_node is None


def test_kernel_files(root: Path) -> None:
    write(root / "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module  580\nGCC version: 15\n")
    write(root / "proc/driver/nvidia-fs/version", "version: 2.25\n")
    write(root / "proc/cpuinfo", "model name\t: Intel(R) Xeon(R)\nflags\t\t: fpu hypervisor\n\nmodel name\t: other\n")
    write(root / "proc/sys/kernel/osrelease", "6.8.0-40-generic\n")
    write(root / "sys/module/nvidia_peermem/version", "580\n")
    write(root / "sys/module/ib_core/parameters/netns_mode", "Y\n")
    write(root / "sys/class/dmi/id/product_name", "DGXH200\n")
    found = sysfs.kernel(root)
    assert found.nvidia_version == "NVRM version: NVIDIA UNIX Open Kernel Module  580"
    assert found.nvidia_fs_version == "version: 2.25"
    assert found.cpu_model == "Intel(R) Xeon(R)"
    assert found.has_hypervisor is True
    assert found.has_peer_memory is True
    assert found.kernel_release == "6.8.0-40-generic"
    assert found.rdma_netns_mode == "Y"
    assert found.product_name == "DGXH200"
    assert found.memlock_bytes is not None
    assert found.errors == {"system_vendor": "ENOENT"}


def test_an_empty_root_is_a_machine_of_which_nothing_is_known(tmp_path: Path) -> None:
    assert sysfs.pci_devices(tmp_path) == ()
    assert sysfs.rdma_devices(tmp_path) == ()
    found = sysfs.kernel(tmp_path)
    assert (found.nvidia_version, found.cpu_model, found.has_hypervisor) == (None, None, None)
    assert found.nvidia_fs_version is None
    assert "nvidia_fs_version" not in found.errors  # that nvidia-fs is not loaded is a fact
