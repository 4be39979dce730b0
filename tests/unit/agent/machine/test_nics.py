"""Which RDMA devices are NICs, what they are, and which of them nothing can use."""

from pathlib import Path

import msgspec
import pytest

from closeknit.agent import sysfs
from closeknit.agent.discovery.machine.nics import nics, statuses
from closeknit.agent.discovery.machine.switch_management import BOARD_IDS, is_switch_management
from closeknit.agent.discovery.readings.readings import (
    KernelReading,
    PciReading,
    RdmaPortReading,
    RdmaReading,
    Readings,
)
from closeknit.agent.discovery.topology import discover
from closeknit.api.nodetopology import MAX_NICS_PER_NODE, Method, Nic, PortState, Transport
from closeknit.api.nodetopology_status import NodeTopologyStatus
from closeknit.machine.published_labels import node_labels
from harness.sysfs_tree import GPU, Device, HostBridge, Machine, Port, Rdma, Tree, nic, write

IB = RdmaPortReading(port=1, state="4: ACTIVE", link_layer="InfiniBand", rate="400 Gb/sec (4X NDR)")
CARD = RdmaReading(name="mlx5_0", address="0000:04:00.0", node_type="1: CA", ports=(IB,))
PLACE = PciReading(
    address="0000:04:00.0",
    path="/sys/devices/pci0000:00/0000:00:01.0/0000:04:00.0",
    vendor="0x15b3",
    device="0x1021",
    device_class="0x020700",
    max_link_width=16,
)
changed = msgspec.structs.replace


def found(*devices: RdmaReading) -> list[Nic]:
    return nics(Readings(rdma=devices, pci=(PLACE,)), [])


def read(root: Path, *slots: Device) -> tuple[Tree, Readings]:
    tree = Tree(root, Machine([HostBridge(0, [GPU, *slots])]))
    return tree, Readings(pci=sysfs.pci_devices(root, {}), rdma=sysfs.rdma_devices(root, {}))


@pytest.mark.parametrize(
    ("node_type", "driver", "link_layer", "expected"),
    [
        pytest.param("1: CA", "mlx5_core", "InfiniBand", Transport.INFINIBAND, id="InfiniBand"),
        pytest.param("1: CA", "mlx5_core", "Ethernet", Transport.ROCE, id="RoCE"),
        pytest.param("1: CA", "irdma", "Ethernet", Transport.ROCE, id="a card that can do iWARP, set to RoCE"),
        pytest.param("4: RNIC", "irdma", "Ethernet", Transport.IWARP, id="iWARP, whose port looks like RoCE"),
        pytest.param("7: unspecified", "efa", "Unknown", Transport.EFA, id="EFA"),
        pytest.param("6: usNIC UDP", "usnic_verbs", "Ethernet", None, id="no RDMA, though its port looks like RoCE"),
        pytest.param(None, "irdma", "Ethernet", None, id="RoCE or iWARP: the file that tells was unreadable"),
        pytest.param("1: CA", "mlx5_core", None, None, id="InfiniBand or RoCE: unreadable"),
    ],
)
def test_transports(node_type: str | None, driver: str, link_layer: str | None, expected: Transport | None) -> None:
    device = changed(CARD, node_type=node_type, driver=driver, ports=(changed(IB, link_layer=link_layer),))
    assert [nic.transport for nic in found(device)] == ([] if expected is None else [expected])


def test_software_is_no_nic() -> None:
    assert found(changed(CARD, is_software=True)) == []


def test_virtual_and_scalable_functions_share_the_wire_of_their_card() -> None:
    virtual = changed(CARD, name="mlx5_3", is_virtual_function=True, physical_address=CARD.address)
    scalable = changed(CARD, name="mlx5_4", is_scalable_function=True, physical_address=CARD.address)
    assert [nic.name for nic in found(CARD, virtual, scalable)] == ["mlx5_0"]


def test_of_a_bond_the_functions_of_both_ports_share_the_wires() -> None:
    """The bond's device is at the first function; the second has no RDMA device of its own."""
    bond = changed(CARD, name="mlx5_bond_0")
    virtual = changed(
        CARD, name="mlx5_3", address="0000:04:01.2", is_virtual_function=True, physical_address="0000:04:00.1"
    )
    assert [nic.name for nic in found(bond, virtual)] == ["mlx5_bond_0"]


def test_a_scalable_function_whose_card_has_no_device_of_its_own_is_a_nic(tmp_path: Path) -> None:
    tree, _ = read(tmp_path, nic("mlx5_0"))
    (tmp_path / "sys/class/infiniband/mlx5_0").unlink()
    tree.rdma(Rdma("mlx5_2", driver="mlx5_core.sf"), tree.functions["mlx5_0"] / "mlx5_core.sf.4")
    readings = Readings(pci=sysfs.pci_devices(tmp_path, {}), rdma=sysfs.rdma_devices(tmp_path, {}))
    (only,) = nics(readings, [readings.pci[0]])
    assert (only.name, only.pci_address, only.numa_node, only.gpu_levels) == ("mlx5_2", "0000:02:00.0", 0, ["PHB"])


@pytest.mark.parametrize(("device", "expected"), [("0x101e", True), ("0x1021", False)])
def test_a_guests_virtual_function_is_told_by_its_id(device: str, expected: bool) -> None:
    (only,) = nics(Readings(rdma=(CARD,), pci=(changed(PLACE, device=device),)), [])
    assert only.virtual_function is expected


def test_a_nic_behind_two_ports_has_the_interface_of_each(tmp_path: Path) -> None:
    """mlx4 has both ports in one function, and both interfaces in one folder."""
    card = nic("mlx4_0", ports=(Port(), Port()), netdevs=("ib0", "ib1"))
    tree, _ = read(tmp_path, card)
    write(tree.functions["mlx4_0"] / "net/ib1/dev_port", "1\n")
    readings = Readings(pci=sysfs.pci_devices(tmp_path, {}), rdma=sysfs.rdma_devices(tmp_path, {}))
    assert [(nic.port, nic.netdev) for nic in nics(readings, [])] == [(1, "ib0"), (2, "ib1")]


def test_the_interface_of_a_bond_is_the_one_with_the_addresses(tmp_path: Path) -> None:
    port = Port("Ethernet", gids=(("IB/RoCE v1", "bond0"), ("RoCE v2", "bond0")))
    _, readings = read(tmp_path, nic("mlx5_bond_0", ports=(port,), netdevs=("eth0",)))
    assert [nic.netdev for nic in nics(readings, [])] == ["bond0"]


def test_of_several_interfaces_none_is_guessed() -> None:
    """Representors of virtual functions stand in the same folder, and say the same port."""
    device = changed(CARD, netdevs=("eth0", "eth0_0"), netdev_ports={"eth0": 0, "eth0_0": 0})
    assert [nic.netdev for nic in found(device)] == [None]


@pytest.mark.parametrize(
    ("port", "reasons"),
    [
        pytest.param(changed(IB, state="1: DOWN"), ["PortDown"], id="down"),
        pytest.param(changed(IB, link_layer="Ethernet", gid_types=()), ["NoRoCEv2GID"], id="without any address"),
        pytest.param(changed(IB, link_layer="Ethernet", gid_types=("IB/RoCE v1",)), ["NoRoCEv2GID"], id="only v1"),
        pytest.param(changed(IB, link_layer="Ethernet", gid_types=("RoCE v2",)), None, id="with an address"),
        pytest.param(changed(IB, link_layer="Ethernet"), None, id="table unread"),
        pytest.param(
            changed(IB, link_layer="Ethernet", gid_types=(), errors={"gid_types": "EINVAL"}), None, id="read in part"
        ),
        pytest.param(changed(IB, gid_types=()), None, id="InfiniBand needs none"),
    ],
)
def test_what_nothing_can_use_is_said_in_the_status(port: RdmaPortReading, reasons: list[str] | None) -> None:
    readings = Readings(rdma=(changed(CARD, ports=(port,)),), pci=(PLACE,))
    told = statuses(readings, nics(readings, []))
    assert [status.reasons for status in told] == ([] if reasons is None else [reasons])


def test_in_switchdev_mode_a_card_has_one_wire_and_its_functions_the_addresses() -> None:
    ports = tuple(changed(IB, port=number, link_layer="Ethernet", gid_types=()) for number in range(1, 10))
    card = changed(CARD, ports=ports)
    virtual = changed(CARD, name="mlx5_1", is_virtual_function=True, physical_address=CARD.address)
    readings = Readings(rdma=(card, virtual), pci=(PLACE,))
    listed = nics(readings, [])
    assert [(nic.name, nic.port) for nic in listed] == [("mlx5_0", 1)]
    assert statuses(readings, listed) == ()
    alone = Readings(rdma=(card,), pci=(PLACE,))
    assert [status.reasons for status in statuses(alone, nics(alone, []))] == [["NoRoCEv2GID"]]


def test_one_usable_port_makes_a_usable_device() -> None:
    down = changed(IB, port=2, state="1: DOWN")
    readings = Readings(rdma=(changed(CARD, ports=(IB, down)),))
    listed = nics(readings, [])
    assert [nic.state for nic in listed] == [PortState.ACTIVE, PortState.DOWN]
    assert statuses(readings, listed) == ()


def test_of_too_many_ports_active_ones_stay() -> None:
    down = [changed(CARD, name=f"mlx5_{number}", ports=(changed(IB, state="1: DOWN"),)) for number in range(40)]
    active = [changed(CARD, name=f"mlx5_{number}") for number in range(40, 100)]
    listed = found(*down, *active)
    assert len(listed) == MAX_NICS_PER_NODE
    assert [nic.name for nic in listed] == [f"mlx5_{number}" for number in (0, 1, 2, 3, *range(40, 100))]


@pytest.mark.parametrize("name", ["x" * 64, "mlx5_0"])
@pytest.mark.parametrize("port", [0, 256])
def test_names_and_ports_that_verbs_do_not_have(name: str, port: int) -> None:
    assert found(changed(CARD, name=name, ports=(changed(IB, port=port),))) == []


@pytest.mark.parametrize(
    ("rate", "expected"),
    [("400 Gb/sec (4X NDR)", 400.0), ("2.5 Gb/sec (1X SDR)", 2.5), ("1.2.3 Gb/sec", None), ("-1 Gb/sec", None)],
)
def test_rates(rate: str, expected: float | None) -> None:
    assert [nic.rate_gb_per_s for nic in found(changed(CARD, ports=(changed(IB, rate=rate),)))] == [expected]


@pytest.mark.parametrize(
    ("device", "place", "expected"),
    [
        pytest.param(changed(CARD, is_switch_management=True), PLACE, True, id="its vital data say so"),
        pytest.param(changed(CARD, is_switch_management=False, board_id=BOARD_IDS[0]), PLACE, False, id="they deny it"),
        *(pytest.param(changed(CARD, board_id=board), PLACE, True, id=board) for board in BOARD_IDS),
        pytest.param(changed(CARD, board_id="MT_0000000838"), PLACE, False, id="a compute NIC"),
        pytest.param(CARD, changed(PLACE, max_link_width=2), True, id="two lanes"),
        pytest.param(CARD, changed(PLACE, max_link_width=8), False, id="eight lanes"),
        pytest.param(CARD, changed(PLACE, max_link_width=0), False, id="a virtual function has no width"),
        pytest.param(CARD, changed(PLACE, max_link_width=None), False, id="width unread"),
        pytest.param(
            CARD, changed(PLACE, max_link_width=2, device_class="0x020000"), False, id="two lanes of Ethernet"
        ),
        pytest.param(CARD, changed(PLACE, max_link_width=2, vendor="0x8086"), False, id="two lanes of another vendor"),
        pytest.param(CARD, None, False, id="nothing known of its function"),
    ],
)
def test_managers_of_nvswitches(device: RdmaReading, place: PciReading | None, expected: bool) -> None:
    assert is_switch_management(device, place) is expected


def test_a_dump_of_an_earlier_agent_tells_of_virtual_functions_only_that_they_are() -> None:
    assert found(changed(CARD, is_virtual_function=True)) == []


@pytest.mark.parametrize(
    ("mode", "errors", "expected"),
    [
        ("Y", {}, []),
        (None, {}, []),
        ("N", {}, None),  # in network namespaces, and none in the agent's own
        ("Y", {"rdma": "EACCES"}, None),
    ],
)
def test_no_nic_is_told_only_by_whoever_could_see_one(
    mode: str | None, errors: dict[str, str], expected: list[Nic] | None
) -> None:
    readings = Readings(kernel=KernelReading(rdma_netns_mode=mode), errors=errors)
    found = discover(readings, Method.NVML)
    assert found.spec.nics == expected
    labels = node_labels(found.spec, NodeTopologyStatus())
    assert ("closeknit.dev/rdma.transport" in labels) == (expected is not None)
    seen = msgspec.structs.replace(readings, rdma=(RdmaReading(name="mlx5_0", is_software=True),))
    assert discover(seen, Method.NVML).spec.nics == []
