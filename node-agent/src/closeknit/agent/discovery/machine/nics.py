"""RDMA NICs of one machine, concluded from its readings. Pure."""

import re
from collections.abc import Collection, Sequence

from closeknit.agent.discovery.machine import pcie_levels
from closeknit.agent.discovery.machine.data_direct import data_place
from closeknit.agent.discovery.machine.switch_management import is_switch_management
from closeknit.agent.discovery.readings import pci
from closeknit.agent.discovery.readings.plausible import possible
from closeknit.agent.discovery.readings.readings import PciReading, RdmaPortReading, RdmaReading, Readings
from closeknit.api.nodetopology import MAX_NICS_PER_NODE, Nic, PortState, Transport
from closeknit.api.nodetopology_status import Health, NicStatus

CHANNEL_ADAPTER, RNIC = "1:", "4:"  # node_type "1: CA" of InfiniBand and RoCE, and of iWARP; EFA has "7: unspecified"
ACTIVE = "4:"  # state "4: ACTIVE"
LINK_LAYERS = {"InfiniBand": Transport.INFINIBAND, "Ethernet": Transport.ROCE}
# Of a virtual machine's NIC only the device's id says that it is a virtual function: those of mlx4 and mlx5.
VIRTUAL_FUNCTIONS = ("0x1002", "0x1004", "0x1012", "0x1014", "0x1016", "0x1018", "0x101a", "0x101c", "0x101e", "0xa2d3")
EXCLUSIVE = "N"  # parameter netns_mode of ib_core: whether devices are shared among network namespaces
ROCE_V2 = "RoCE v2"
MAX_NAME_LENGTH, PORTS = 63, range(1, 256)  # of the kernel, and of verbs
# No function has more wires. A card in switchdev mode adds ports for its virtual functions after the one with the wire.
MOST_WIRES = 2


def nics(readings: Readings, gpus: Sequence[PciReading | None]) -> list[Nic]:
    """The ports of RDMA devices by name and number, with the PCIe level of the function that carries their data to each
    GPU in the order of `gpus`.

    Left out are software, which is no faster than the card's own sockets; the management devices of NVSwitches, which
    look like NICs and lead nowhere; virtual and scalable functions beside the function whose wire they share; and ports
    that do not say what they are. Of more ports than the object holds, active ones stay before others.
    """
    places = {device.address: device for device in readings.pci}
    cards = {pci.card(device.address) for device in readings.rdma if device.physical_address is None}
    found = []
    for device in sorted(readings.rdma, key=lambda device: _natural(device.name)):
        place = places.get(device.address or "")
        if device.is_software or is_switch_management(device, place) or _shares_a_wire(device, cards):
            continue
        data = data_place(device, place, readings)
        for port in _wires(device):
            transport = _transport(device, port)
            is_named = len(device.name) <= MAX_NAME_LENGTH and port.port in PORTS
            if transport is not None and port.state is not None and is_named:
                found.append(_nic(device, port, transport, place, data, gpus))
    by_merit = sorted(range(len(found)), key=lambda row: (found[row].state is not PortState.ACTIVE, row))
    return [found[row] for row in sorted(by_merit[:MAX_NICS_PER_NODE])]


def could_look(readings: Readings) -> bool:
    """Whether there is none where there seems to be none.

    Not where the folder of devices could not be read; nor where devices belong to network namespaces and the agent's
    own has none, as that of every Pod without the node's /sys.
    """
    return bool(readings.rdma) or not ("rdma" in readings.errors or readings.kernel.rdma_netns_mode == EXCLUSIVE)


def statuses(readings: Readings, found: Sequence[Nic]) -> tuple[NicStatus, ...]:
    """The devices of these NICs that nothing can use: a status names devices, and not ports."""
    by_name = {device.name: device for device in readings.rdma}
    in_parts = {pci.card(device.physical_address) for device in readings.rdma if device.physical_address is not None}
    unusable = []
    for name in dict.fromkeys(nic.name for nic in found):
        active = {nic.port for nic in found if nic.name == name and nic.state is PortState.ACTIVE}
        device = by_name[name]
        ports = [port for port in device.ports if port.port in active]
        if not active:
            unusable.append(NicStatus(name=name, state=Health.DOWN, reasons=["PortDown"]))
        elif pci.card(device.address) in in_parts:
            continue  # the card's virtual or scalable functions have the addresses, as in switchdev mode
        elif ports and all(_is_without_address(port) for port in ports):
            unusable.append(NicStatus(name=name, state=Health.UNHEALTHY, reasons=["NoRoCEv2GID"]))
    return tuple(unusable)


def _nic(
    device: RdmaReading,
    port: RdmaPortReading,
    transport: Transport,
    place: PciReading | None,
    data: PciReading | None,
    gpus: Sequence[PciReading | None],
) -> Nic:
    active = (port.state or "").startswith(ACTIVE)
    is_virtual = place is not None and place.vendor == pci.MELLANOX_VENDOR and place.device in VIRTUAL_FUNCTIONS
    return possible(
        Nic,
        name=device.name,
        port=port.port,
        pci_address=device.address,
        numa_node=pci.numa_node(place),
        transport=transport,
        state=PortState.ACTIVE if active else PortState.DOWN,
        rate_gb_per_s=_rate(port.rate) if active else None,  # a port that is down prints a rate of its own
        netdev=_netdev(device, port),
        virtual_function=device.is_virtual_function or is_virtual,
        data_direct_address=data.address if data is not None and data is not place else None,
        gpu_levels=pcie_levels.to_gpus(data, gpus),
    )


def _wires(device: RdmaReading) -> list[RdmaPortReading]:
    """The ports that have a wire each, by number."""
    ports = sorted(device.ports, key=lambda port: port.port)
    return ports if len(ports) <= MOST_WIRES else ports[:1]


def _shares_a_wire(device: RdmaReading, cards: Collection[str]) -> bool:
    """Whether this is a function of a card that has an RDMA device of its own.

    Of the card, and not of the function: the device of a bond is at the first function, and stands for the second, too.
    A dump of an earlier agent tells that it is a virtual function, but not which.
    """
    if device.physical_address is None:
        return device.is_virtual_function
    return pci.card(device.physical_address) in cards


def _transport(device: RdmaReading, port: RdmaPortReading) -> Transport | None:
    if device.driver == "efa":
        return Transport.EFA
    kind = device.node_type or ""
    if kind.startswith(RNIC):
        return Transport.IWARP
    return LINK_LAYERS.get(port.link_layer or "") if kind.startswith(CHANNEL_ADAPTER) else None


def _netdev(device: RdmaReading, port: RdmaPortReading) -> str | None:
    """The port's own network interface; None where several could be.

    The addresses of a RoCE port are on it, of a bond's port on the bond; else the device's interfaces say to which port
    they belong.
    """
    if len(port.gid_netdevs) == 1:
        return port.gid_netdevs[0]
    own = [netdev for netdev in device.netdevs if device.netdev_ports.get(netdev) == port.port - 1]
    if len(own) == 1:
        return own[0]
    return device.netdevs[0] if len(device.netdevs) == 1 and len(device.ports) == 1 else None


def _is_without_address(port: RdmaPortReading) -> bool:
    """Whether an Ethernet port surely has no RoCE v2 address, without which no packet of it is routed.

    Its table says so only as a whole: one entry that could not be read may have been the one.
    """
    if port.link_layer != "Ethernet" or port.gid_types is None or "gid_types" in port.errors:
        return False
    return ROCE_V2 not in port.gid_types


def _rate(text: str | None) -> float | None:
    """Gb/s of "400 Gb/sec (4X NDR)"."""
    match = re.match(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) Gb/sec", text or "")
    return float(match[1]) if match else None


def _natural(name: str) -> tuple[str | int, ...]:
    """Sorts mlx5_2 before mlx5_10."""
    # Every second part is the number that parted the rest; a word of other scripts' digits stays a word.
    return tuple(int(part) if row % 2 else part for row, part in enumerate(re.split(r"([0-9]{1,9})", name)))
