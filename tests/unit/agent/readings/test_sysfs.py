"""What is read below any root folder, of a machine as Linux shows it."""

from dataclasses import replace
from pathlib import Path

import pytest

from closeknit.agent import sysfs
from closeknit.agent.discovery.readings.readings import CpuReading, PciReading, RdmaPortReading, RdmaReading
from harness.sysfs_tree import GPU, Device, HostBridge, Machine, Port, Rdma, Tree, nic, write

DISK = Device("0x144d", "0xa80a", "0x010802")
CAPTURE = Device("0xf1d0", "0xeb0e", "0x040000")
MACHINE = Machine([HostBridge(0, [[GPU, nic("mlx5_0")], DISK, CAPTURE])])


@pytest.fixture
def errors() -> dict[str, str]:
    return {}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path, MACHINE)


def rdma(root: Path) -> RdmaReading:
    (found,) = sysfs.rdma_devices(root, {})
    return found


def test_pci_devices_with_the_bridges_above_them(tree: Tree, errors: dict[str, str]) -> None:
    gpu, card, capture = sysfs.pci_devices(tree.root, errors)
    assert gpu == PciReading(
        address="0000:03:00.0",
        path="/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0",
        vendor="0x10de",
        device="0x2330",
        device_class="0x030200",
        numa_node=0,
    )
    assert (card.address, card.max_link_width) == ("0000:04:00.0", 16)
    assert (capture.vendor, capture.device) == ("0xf1d0", "0xeb0e")
    assert errors == {}


def test_rdma_devices(tree: Tree, errors: dict[str, str]) -> None:
    assert sysfs.rdma_devices(tree.root, errors) == (
        RdmaReading(
            name="mlx5_0",
            address="0000:04:00.0",
            node_type="1: CA",
            board_id="MT_0000000838",
            driver="mlx5_core",
            netdevs=("ib0",),
            netdev_ports={"ib0": 0},
            ports=(RdmaPortReading(port=1, state="4: ACTIVE", link_layer="InfiniBand", rate="400 Gb/sec (4X NDR)"),),
            errors={"is_switch_management": "ENOENT"},
        ),
    )
    assert errors == {}


@pytest.mark.parametrize(
    ("vital", "expected"), [(b"\x82\x10\x00SMDL=SW_MNG\x90", True), (b"\x82\x00ConnectX-7", False)]
)
def test_vital_product_data_where_they_can_be_read(tree: Tree, vital: bytes, expected: bool) -> None:
    (tree.functions["mlx5_0"] / "vpd").write_bytes(vital)
    assert rdma(tree.root).is_switch_management is expected


def test_a_virtual_function_names_its_physical_one(tree: Tree) -> None:
    function = tree.functions["mlx5_0"]
    (function / "physfn").symlink_to("../0000:09:00.0")
    found = rdma(tree.root)
    assert (found.is_virtual_function, found.physical_address) == (True, "0000:09:00.0")


def test_a_scalable_function_is_at_the_function_that_it_is_a_part_of(tree: Tree) -> None:
    """It hangs on the auxiliary bus, below that function, and so is no PCI device itself."""
    function = tree.functions["mlx5_0"]
    (tree.root / "sys/class/infiniband/mlx5_0").unlink()
    tree.rdma(Rdma("mlx5_2", driver="mlx5_core.sf"), function / "mlx5_core.sf.4")
    found = rdma(tree.root)
    assert (found.address, found.is_scalable_function, found.physical_address) == ("0000:04:00.0", True, "0000:04:00.0")
    assert (found.driver, found.is_virtual_function) == ("mlx5_core.sf", False)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"parent": "eth0\n"}, id="rxe says on which interface it is"),
        pytest.param({"node_desc": "Software iWARP stack\n"}, id="siw by its description"),
    ],
)
def test_software_on_a_network_card(changed: dict[str, str], tmp_path: Path) -> None:
    card = nic("rxe0")
    assert card.rdma is not None
    Tree(tmp_path, Machine([HostBridge(0, [replace(card, rdma=replace(card.rdma, files=changed))])]))
    assert rdma(tmp_path).is_software


def test_software_without_any_card(tmp_path: Path) -> None:
    folder = tmp_path / "sys/devices/virtual/infiniband/rxe0"
    write(folder / "node_type", "1: CA\n")
    (tmp_path / "sys/class/infiniband").mkdir(parents=True)
    (tmp_path / "sys/class/infiniband/rxe0").symlink_to("../../devices/virtual/infiniband/rxe0")
    assert rdma(tmp_path).is_software


def test_a_description_that_the_administrator_wrote_is_no_software(tree: Tree) -> None:
    write(tree.functions["mlx5_0"] / "infiniband/mlx5_0/node_desc", "node-1 mlx5_0\n")
    assert not rdma(tree.root).is_software


def roce(tmp_path: Path, *gids: tuple[str, str]) -> Tree:
    return Tree(tmp_path, Machine([HostBridge(0, [nic("mlx5_0", ports=(Port("Ethernet", gids=gids),))])]))


def test_types_and_interfaces_of_the_gids_but_not_the_addresses(tmp_path: Path) -> None:
    roce(tmp_path, ("IB/RoCE v1", "eth0"), ("RoCE v2", "eth0"), ("RoCE v2", "bond0"))
    (port,) = rdma(tmp_path).ports
    assert (port.gid_types, port.gid_netdevs, port.errors) == (("IB/RoCE v1", "RoCE v2"), ("eth0", "bond0"), {})


def test_a_table_without_an_address(tmp_path: Path) -> None:
    roce(tmp_path)
    (port,) = rdma(tmp_path).ports
    assert (port.gid_types, port.errors) == ((), {})


def test_a_gid_that_does_not_say_its_type(tmp_path: Path) -> None:
    tree = roce(tmp_path, ("RoCE v2", "eth0"))
    (tree.functions["mlx5_0"] / "infiniband/mlx5_0/ports/1/gid_attrs/types/0").unlink()
    (port,) = rdma(tmp_path).ports
    assert (port.gid_types, port.errors) == ((), {"gid_types": "ENOENT"})


def test_kernel_files(tree: Tree) -> None:
    root = tree.root
    write(root / "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module  580\nGCC version: 15\n")
    write(root / "proc/driver/nvidia-fs/version", "version: 2.25\n")
    write(root / "proc/sys/kernel/osrelease", "6.8.0-40-generic\n")
    write(root / "sys/module/nvidia_peermem/version", "580\n")
    write(root / "sys/module/nvidia/version", "580\n")
    write(root / "proc/sys/kernel/random/boot_id", "91b738ad-6b95-439e-a91f-ab78bb679120\n")
    write(root / "sys/module/ib_core/parameters/netns_mode", "Y\n")
    write(root / "sys/class/dmi/id/product_name", "DGXH200\n")
    write(root / "proc/devices", "Character devices:\n195 nvidia\n234 nvidia-caps-imex-channels\n")
    told = "topologyManagerPolicy: restricted\ncpuManagerPolicy: static\nmemoryManagerPolicy: Static\n"
    write(root / "etc/closeknit/kubelet-configuration", f"kind: KubeletConfiguration\n{told}")
    found = sysfs.kernel(root)
    assert found.nvidia_version == "NVRM version: NVIDIA UNIX Open Kernel Module  580"
    assert found.nvidia_fs_version == "version: 2.25"
    assert found.cpu_model == "Intel(R) Xeon(R)"
    assert found.cpu == CpuReading(vendor="GenuineIntel", family=6, model=143, sockets=2)
    assert found.has_hypervisor is False
    assert found.has_peer_memory is True
    assert found.boot_id == "91b738ad-6b95-439e-a91f-ab78bb679120"
    assert found.nvidia_load == (root / "sys/module/nvidia").stat().st_ino
    assert found.kernel_release == "6.8.0-40-generic"
    assert found.rdma_netns_mode == "Y"
    assert found.product_name == "DGXH200"
    assert found.memlock_bytes is not None
    assert found.has_imex_channels is True
    assert (found.topology_manager_policy, found.cpu_manager_policy) == ("restricted", "static")
    assert found.memory_manager_policy == "Static"
    assert found.errors == {"system_vendor": "ENOENT"}


def test_sockets_of_cpus_that_are_off_or_do_not_say_theirs(tree: Tree) -> None:
    cpus = tree.root / "sys/devices/system/cpu"
    (cpus / "cpu2").mkdir()
    (cpus / "cpufreq").mkdir()
    assert sysfs.kernel(tree.root).cpu.sockets == 2
    for number in (0, 1):
        write(cpus / f"cpu{number}/topology/physical_package_id", "-1\n")
    (cpus / "cpu2").rmdir()
    found = sysfs.kernel(tree.root).cpu
    assert (found.sockets, found.errors) == (None, {"sockets": "NotTold"})


@pytest.mark.parametrize(
    ("text", "policy", "error"),
    [
        pytest.param('{"topologyManagerPolicy": "single-numa-node"}', "single-numa-node", None, id="JSON is YAML, too"),
        pytest.param("kind: KubeletConfiguration\n", None, "NotConfigured", id="flags and drop-ins may still set it"),
        pytest.param("topologyManagerPolicy: [none]\n", None, "NotText", id="a list"),
        pytest.param("topologyManagerPolicy: {", None, "NotText", id="no YAML"),
        pytest.param("[" * 100_000, None, "NotText", id="nested deeply"),
        pytest.param("- topologyManagerPolicy", None, "NotText", id="no mapping"),
        pytest.param(f"topologyManagerPolicy: {'x' * 64}", None, "NotText", id="too long a name"),
        pytest.param("#" * (1 << 19), None, "TooLarge", id="too large a file"),
    ],
)
def test_the_kubelets_policy_is_what_its_file_says(
    text: str, policy: str | None, error: str | None, tree: Tree
) -> None:
    write(tree.root / "etc/closeknit/kubelet-configuration", text)
    found = sysfs.kernel(tree.root)
    assert (found.topology_manager_policy, found.errors.get("topology_manager_policy")) == (policy, error)


def test_each_policy_of_the_kubelets_file_is_told_by_itself(tree: Tree) -> None:
    text = "cpuManagerPolicy: static\nmemoryManagerPolicy: [Static]\n"
    write(tree.root / "etc/closeknit/kubelet-configuration", text)
    found = sysfs.kernel(tree.root)
    assert (found.cpu_manager_policy, found.memory_manager_policy, found.topology_manager_policy) == (
        "static",
        None,
        None,
    )
    assert found.errors["memory_manager_policy"] == "NotText"
    assert found.errors["topology_manager_policy"] == "NotConfigured"


def test_without_the_kubelets_file_its_policy_is_absent_and_no_error(tree: Tree) -> None:
    found = sysfs.kernel(tree.root)
    assert found.topology_manager_policy is None
    assert "topology_manager_policy" not in found.errors


def test_an_empty_root_is_a_machine_of_which_nothing_is_known(tmp_path: Path, errors: dict[str, str]) -> None:
    assert sysfs.pci_devices(tmp_path, errors) == ()
    assert sysfs.rdma_devices(tmp_path, errors) == ()
    assert errors == {"pci": "ENOENT"}  # no machine is without PCI, but many are without RDMA
    found = sysfs.kernel(tmp_path)
    assert (found.nvidia_version, found.cpu_model, found.has_hypervisor) == (None, None, None)
    assert found.nvidia_fs_version is None
    assert "nvidia_fs_version" not in found.errors  # that nvidia-fs is not loaded is a fact
    assert found.has_peer_memory is False
    assert found.cpu == CpuReading(errors={"sockets": "ENOENT"})
