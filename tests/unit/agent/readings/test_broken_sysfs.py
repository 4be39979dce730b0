"""sysfs trees as they should never be: each fault costs its own fact, says so, and never raises or hangs."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from closeknit.agent import sysfs
from closeknit.agent.discovery.readings.dump import encode
from closeknit.agent.discovery.readings.readings import GpuReading, Readings
from closeknit.agent.discovery.topology import discover
from closeknit.agent.sysfs.folder import root_folder
from closeknit.api.nodetopology import Method
from harness.sysfs_tree import GPU, HostBridge, Machine, Tree, nic, write

MACHINE = Machine([HostBridge(0, [[GPU, nic("mlx5_0")]])])


def spoil_with(content: bytes) -> Callable[[Path], None]:
    def spoil(file: Path) -> None:
        file.write_bytes(content)

    return spoil


def spoil_into(change: Callable[[Path], None]) -> Callable[[Path], None]:
    def spoil(file: Path) -> None:
        file.unlink()
        change(file)

    return spoil


FAULTS = [
    pytest.param(spoil_into(lambda _: None), "ENOENT", id="missing"),
    pytest.param(spoil_with(b""), "Empty", id="empty"),
    pytest.param(spoil_with(b" \n"), "Empty", id="blank"),
    pytest.param(spoil_with(b"\x00\xff\xfe\x01"), "NotText", id="binary"),
    pytest.param(spoil_with(b"\x1b[31m0x10de"), "NotText", id="with terminal codes"),
    pytest.param(spoil_with(b"0" * (1 << 20)), "TooLarge", id="larger than any attribute"),
    pytest.param(spoil_into(Path.mkdir), "NotAFile", id="a folder"),
    pytest.param(spoil_into(os.mkfifo), "NotAFile", id="a pipe that nobody writes to"),
    pytest.param(spoil_into(lambda file: file.symlink_to("/dev/zero")), "ELOOP", id="a link to an endless file"),
    pytest.param(spoil_into(lambda file: file.symlink_to(file.name)), "ELOOP", id="a link to itself"),
]


@pytest.mark.parametrize(("spoil", "word"), FAULTS)
def test_a_broken_attribute_costs_itself(spoil: Callable[[Path], None], word: str, tmp_path: Path) -> None:
    tree = Tree(tmp_path, MACHINE)
    function = tree.functions["mlx5_0"]
    spoil(function / "device")
    spoil(function / "infiniband/mlx5_0/ports/1/rate")
    gpu, card = sysfs.pci_devices(tmp_path, {})
    assert (card.device, card.errors) == (None, {"device": word})
    assert (gpu.errors, gpu.numa_node) == ({}, 0)
    (found,) = sysfs.rdma_devices(tmp_path, {})
    assert (found.ports[0].rate, found.ports[0].errors) == (None, {"rate": word})
    assert found.ports[0].state == "4: ACTIVE"


@pytest.mark.parametrize("text", ["garbage", "1.5", "0x1", "--1", "9" * 30, "\N{ARABIC-INDIC DIGIT ONE}"])
def test_a_numa_node_that_is_no_number_is_absent(text: str, tmp_path: Path) -> None:
    tree = Tree(tmp_path, MACHINE)
    write(tree.functions["mlx5_0"] / "numa_node", text)
    card = sysfs.pci_devices(tmp_path, {})[1]
    assert (card.numa_node, card.errors) == (None, {"numa_node": "NotANumber"})


@pytest.mark.parametrize("numa", ["99999", "1024"])
def test_an_impossible_numa_node_costs_neither_nic_nor_gpu(numa: str, tmp_path: Path) -> None:
    tree = Tree(tmp_path, MACHINE)
    for entry in (tmp_path / "sys/bus/pci/devices").iterdir():
        write(entry / "numa_node", numa)
    spec = discover(
        Readings(
            gpus=(GpuReading(index=0, bus_id=tree.gpus[0]),),
            pci=sysfs.pci_devices(tmp_path, {}),
            rdma=sysfs.rdma_devices(tmp_path, {}),
        ),
        Method.NVML,
    ).spec
    assert [gpu.numa_node for gpu in spec.gpus] == [None]
    assert [(nic.name, nic.numa_node) for nic in spec.nics or ()] == [("mlx5_0", None)]


def relink(root: Path, target: str) -> None:
    for link in ("sys/bus/pci/devices/0000:04:00.0", "sys/class/infiniband/mlx5_0"):
        (root / link).unlink()
        (root / link).symlink_to(target)


@pytest.mark.parametrize(
    ("target", "word"),
    [
        pytest.param("/etc", "OutsideRoot", id="out of the root folder"),
        pytest.param("../../../../../../../../../../../../etc", "OutsideRoot", id="out of it by climbing"),
        pytest.param("nowhere", "ENOENT", id="to nothing"),
        pytest.param("mlx5_0", "ELOOP", id="in a circle"),
    ],
)
def test_a_device_behind_a_wrong_link_is_none_and_is_named(target: str, word: str, tmp_path: Path) -> None:
    Tree(tmp_path, MACHINE)
    relink(tmp_path, target)
    (tmp_path / "sys/bus/pci/devices/mlx5_0").symlink_to("0000:04:00.0")  # closes the circle there, too
    errors: dict[str, str] = {}
    assert [device.address for device in sysfs.pci_devices(tmp_path, errors)] == ["0000:03:00.0"]
    assert sysfs.rdma_devices(tmp_path, errors) == ()
    assert errors == {"pci/0000:04:00.0": word, "rdma/mlx5_0": word}


@pytest.mark.parametrize("folder", ["proc", "sys/class/dmi", "sys/module"])
def test_files_of_the_kernel_behind_a_link_out_of_the_root_are_not_read(folder: str, tmp_path: Path) -> None:
    outside, root = tmp_path / "outside", tmp_path / "root"
    for file in ("cpuinfo", "id/product_name", "ib_core/parameters/netns_mode"):
        write(outside / file, "model name\t: secret\n" if file == "cpuinfo" else "secret\n")
    (root / folder).parent.mkdir(parents=True)
    (root / folder).symlink_to(outside)
    found = sysfs.kernel(root)
    assert (found.cpu_model, found.product_name, found.rdma_netns_mode) == (None, None, None)
    assert "OutsideRoot" in found.errors.values()


def test_names_that_are_no_text_cost_themselves(tmp_path: Path) -> None:
    """A dump is JSON, and the API server takes no half characters either."""
    tree = Tree(tmp_path, MACHINE)
    half = os.fsdecode(b"\xff")
    function = tree.functions["mlx5_0"]
    (tmp_path / "sys/class/infiniband" / half).symlink_to("../../../sys/devices")
    (function / "net" / half).mkdir()
    (function / "driver").unlink()
    (function / "driver").symlink_to(f"drivers/{half}")
    (found,) = sysfs.rdma_devices(tmp_path, {})
    assert (found.name, found.netdevs, found.driver) == ("mlx5_0", ("ib0",), None)
    encode(Readings(rdma=(found,)))


def test_a_read_that_fails_in_the_device_costs_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a device that fell off the bus answers, and files that are not for this user."""
    words = {"EIO": OSError(5, "Input/output error"), "EACCES": PermissionError(13, "Permission denied")}
    write(tmp_path / "broken", "x")
    for word, error in words.items():

        def fail(*_: object, error: OSError = error) -> bytes:
            raise error

        errors: dict[str, str] = {}
        with monkeypatch.context() as patched:
            patched.setattr(os, "read", fail)
            assert root_folder(tmp_path, errors).text("broken", "fact") is None
        assert errors == {"fact": word}


def test_what_only_root_may_read_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(Tree(tmp_path, MACHINE).functions["mlx5_0"] / "vpd", "SW_MNG")
    opened = os.open

    def as_a_user(path: str, *arguments: int) -> int:
        if path.endswith("/vpd"):
            raise PermissionError(13, "Permission denied")
        return opened(path, *arguments)

    monkeypatch.setattr(os, "open", as_a_user)
    (found,) = sysfs.rdma_devices(tmp_path, {})
    assert (found.is_switch_management, found.errors) == (None, {"is_switch_management": "EACCES"})


def test_ten_thousand_devices_are_read_in_part_and_in_order(tmp_path: Path) -> None:
    devices = tmp_path / "sys/class/infiniband"
    for number in range(10_000):
        (devices / f"mlx5_{number:05d}").mkdir(parents=True)
    errors: dict[str, str] = {}
    found = sysfs.rdma_devices(tmp_path, errors)
    assert errors == {"rdma": "TooMany"}
    assert [device.name for device in found] == [f"mlx5_{number:05d}" for number in range(1024)]


def test_as_many_broken_devices_are_named_as_a_message_can_hold(tmp_path: Path) -> None:
    devices = tmp_path / "sys/bus/pci/devices"
    devices.mkdir(parents=True)
    for number in range(1000):
        (devices / f"{number:04x}:00:00.0").symlink_to("nowhere")
    errors: dict[str, str] = {}
    assert sysfs.pci_devices(tmp_path, errors) == ()
    assert 0 < len(errors) <= 32
    assert errors["pci"] == "TooMany"


def test_names_that_are_no_addresses_and_ports_that_are_no_numbers_are_left_alone(tmp_path: Path) -> None:
    tree = Tree(tmp_path, MACHINE)
    (tmp_path / "sys/bus/pci/devices/\N{SNOWMAN}").mkdir()
    ports = tree.functions["mlx5_0"] / "infiniband/mlx5_0/ports"
    for name in ("0", "-1", "x", "999", "00"):
        (ports / name).mkdir()
    errors: dict[str, str] = {}
    assert len(sysfs.pci_devices(tmp_path, errors)) == 2
    (found,) = sysfs.rdma_devices(tmp_path, errors)
    assert [port.port for port in found.ports] == [1, 999]
    assert errors == {}
    spec = discover(Readings(pci=sysfs.pci_devices(tmp_path, errors), rdma=(found,)), Method.NVML).spec
    assert [nic.port for nic in spec.nics or ()] == [1]


def test_a_root_folder_that_does_not_exist(tmp_path: Path) -> None:
    errors: dict[str, str] = {}
    nowhere = tmp_path / "nowhere"
    assert (sysfs.pci_devices(nowhere, errors), sysfs.rdma_devices(nowhere, errors)) == ((), ())
    assert sysfs.kernel(nowhere).cpu.sockets is None
