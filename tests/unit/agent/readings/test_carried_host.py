"""One file of sysfs or procfs that cannot be read never changes what a machine is."""

import os
from pathlib import Path

import pytest

from closeknit.agent import sysfs
from closeknit.agent.discovery.readings.carried_gpus import remembered
from closeknit.agent.discovery.readings.carried_host import around
from closeknit.agent.discovery.readings.readings import GpuReading, Readings
from closeknit.agent.discovery.topology import discover
from closeknit.api.nodetopology import Method, NodeTopologySpec
from harness.sysfs_machines import GB300_TRAY, KNOWN
from harness.sysfs_tree import GPU, HostBridge, Machine, Port, Tree, nic, write

ROCE = Port("Ethernet", gids=(("RoCE v2", "eth0"), ("RoCE v2", "eth0")))
SMALL = Machine(
    [HostBridge(0, [[GPU, nic("mlx5_0")], nic("mlx5_1", ports=(ROCE,), netdevs=("eth0",))]), HostBridge(1, [GPU])],
    files={
        "sys/class/dmi/id/sys_vendor": "Supermicro\n",
        "sys/class/dmi/id/product_name": "SYS-821GE\n",
        "sys/module/ib_core/parameters/netns_mode": "Y\n",
        "sys/module/nvidia_peermem/version": "580\n",
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580\n",
        "proc/driver/nvidia-fs/version": "2.17\n",
        "proc/sys/kernel/osrelease": "6.8.0\n",
        "proc/devices": "195 nvidia\n",
    },
)


def read(root: Path, gpus: list[str]) -> Readings:
    errors: dict[str, str] = {}
    found = tuple(GpuReading(index=index, bus_id=address) for index, address in enumerate(gpus))
    pci, rdma = sysfs.pci_devices(root, errors), sysfs.rdma_devices(root, errors)
    lists = "pci" not in errors
    return Readings(gpus=found, pci=pci, lists_capture_cards=lists, rdma=rdma, kernel=sysfs.kernel(root), errors=errors)


def spec(readings: Readings) -> NodeTopologySpec:
    return discover(readings, Method.NVML).spec


@pytest.mark.parametrize("address", ["0000:03:00.0", "0009:03:00.0"])
def test_vital_product_data_that_say_nothing_for_once_take_no_nic_from_its_gpu(address: str, tmp_path: Path) -> None:
    tree = Tree(tmp_path, GB300_TRAY.machine)
    before = read(tmp_path, tree.gpus)
    (tmp_path / "sys/bus/pci/devices" / address / "vpd").write_bytes(b"")
    assert spec(remembered(before, read(tmp_path, tree.gpus))) == spec(before)


def unreadable(place: Path) -> None:
    """As the kernel's files are when a device does not answer: there, and nothing but an error."""
    kept = place.with_name(f"{place.name}.kept")
    place.rename(kept)
    if kept.is_symlink() or kept.is_dir():
        place.symlink_to(place.name)
    else:
        place.mkdir()


def readable(place: Path) -> None:
    if place.is_symlink():
        place.unlink()
    else:
        place.rmdir()
    place.with_name(f"{place.name}.kept").rename(place)


def places(root: Path) -> list[Path]:
    """Every file, and the links to devices and the folders that are listed."""
    found = [Path(folder) / name for folder, _, names in os.walk(root) for name in names]
    listed = ("sys/bus/pci/devices", "sys/class/infiniband", "sys/devices/system/cpu")
    return sorted(found) + [root / name for name in listed if (root / name).is_dir()]


@pytest.mark.parametrize("machine", [pytest.param(SMALL, id="small"), *KNOWN])
def test_one_unreadable_file_never_changes_the_spec(
    machine: Machine | str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    described = machine if isinstance(machine, Machine) else KNOWN[machine].machine
    tree = Tree(tmp_path, described)
    whole = read(tmp_path, tree.gpus)
    assert remembered(whole, whole) == whole
    expected, found = spec(whole), places(tmp_path)
    every = 1 if described is SMALL or request.config.getoption("--long") else len(found) // 12
    changes = 0
    for place in found[::every]:
        unreadable(place)
        now = remembered(whole, read(tmp_path, tree.gpus))
        readable(place)
        assert spec(now) == expected, place
        changes += now.errors != whole.errors or now.kernel != whole.kernel or now.rdma != whole.rdma
        assert remembered(now, whole) == whole  # and nothing is left of it
    assert changes > 3


def test_what_is_gone_is_gone(tmp_path: Path) -> None:
    tree = Tree(tmp_path, SMALL)
    whole = read(tmp_path, tree.gpus)
    for name in ("sys/class/infiniband/mlx5_1", "sys/module/nvidia_peermem/version", "proc/driver/nvidia-fs/version"):
        (tmp_path / name).unlink()
    now = spec(around(whole, read(tmp_path, tree.gpus)))
    assert [nic.name for nic in now.nics or ()] == ["mlx5_0"]
    assert (now.capabilities.gpu_direct_rdma, now.capabilities.gpu_direct_storage) == ("Likely", False)


def test_what_is_read_differently_changes(tmp_path: Path) -> None:
    tree = Tree(tmp_path, SMALL)
    whole = read(tmp_path, tree.gpus)
    write(tree.functions["mlx5_0"] / "infiniband/mlx5_0/ports/1/state", "1: DOWN\n")
    write(tree.functions["mlx5_0"] / "numa_node", "1\n")
    found = (spec(around(whole, read(tmp_path, tree.gpus))).nics or [])[0]
    assert (found.state, found.numa_node) == ("Down", 1)
