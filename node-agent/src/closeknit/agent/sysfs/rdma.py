"""Readings of RDMA devices, hardware or not."""

import re
from pathlib import Path

from closeknit.agent.discovery.readings.readings import RdmaPortReading, RdmaReading
from closeknit.agent.sysfs.folder import MAX_ERRORS, Folder, root_folder
from closeknit.agent.sysfs.pci_files import ADDRESS
from closeknit.agent.sysfs.vital_product_data import card_uuid, vital_product_data

DEVICES = "sys/class/infiniband"
MAX_DEVICES = 1024  # a host that gives out virtual functions has some hundred
MAX_PORTS = 16
MAX_GIDS = 256  # mlx5's table
SWITCH_MANAGEMENT = b"SW_MNG"
NO_GID = re.compile("[0:]*")
# What the kernel's two software devices are told by: siw by its description, rxe by a file that no other device has.
SIW_DESCRIPTION, RXE_FILE = "Software iWARP stack", "parent"


def rdma_devices(root: Path, errors: dict[str, str]) -> tuple[RdmaReading, ...]:
    """The devices of /sys/class/infiniband, by name."""
    top = root_folder(root, errors)
    if top.has(DEVICES, "rdma") is not True:
        return ()  # no RDMA in this kernel is a fact, and not an error
    names = top.names(DEVICES, "rdma")
    if len(names) > MAX_DEVICES:
        errors["rdma"] = "TooMany"
    found = []
    for name in names[:MAX_DEVICES]:
        entry = top.folder(f"{DEVICES}/{name}", f"rdma/{name}" if len(errors) < MAX_ERRORS else None)
        if entry is not None:
            found.append(_device(name, entry.with_errors()))
    return tuple(found)


def _device(name: str, entry: Folder) -> RdmaReading:
    function = entry.folder("device")  # software has none
    above = [] if function is None else [function.name, *function.parents()]
    address = next((part for part in above if ADDRESS.fullmatch(part)), None)
    is_scalable = function is not None and address is not None and function.name != address
    physical = function.target("physfn") if function is not None else None
    physical = physical if physical is not None and ADDRESS.fullmatch(physical) else None
    netdevs = function.names("net") if function is not None else []
    vital = vital_product_data(function, "is_switch_management") if function is not None else None
    ports = {}
    for netdev in netdevs[:MAX_PORTS]:
        port = function.number(f"net/{netdev}/dev_port", "netdev_ports") if function is not None else None
        if port is not None:
            ports[netdev] = port
    return RdmaReading(
        name=name,
        address=address,
        node_type=entry.text("node_type", "node_type"),
        board_id=entry.text("board_id", "board_id"),
        driver=function.target("driver") if function is not None else None,
        netdevs=tuple(netdevs[:MAX_PORTS]),
        netdev_ports=ports,
        is_virtual_function=physical is not None,
        is_scalable_function=is_scalable,
        physical_address=address if is_scalable else physical,
        is_software=address is None or _is_software(entry),
        is_switch_management=None if vital is None else SWITCH_MANAGEMENT in vital,
        card_uuid=None if vital is None else card_uuid(vital),
        ports=_ports(entry),
        errors=entry.errors | ({} if function is None else function.errors),
    )


def _is_software(entry: Folder) -> bool:
    quiet = entry.with_errors()  # devices without a description are hardware; there is nothing to report
    return quiet.has(RXE_FILE, "is_software") is True or quiet.text("node_desc", "node_desc") == SIW_DESCRIPTION


def _ports(entry: Folder) -> tuple[RdmaPortReading, ...]:
    numbers = sorted(int(name) for name in entry.names("ports", "ports") if re.fullmatch("[1-9][0-9]{0,2}", name))
    found = []
    for number in numbers[:MAX_PORTS]:
        folder = entry.folder(f"ports/{number}", f"ports/{number}")
        if folder is not None:
            found.append(_port(number, folder.with_errors()))
    return tuple(found)


def _port(number: int, folder: Folder) -> RdmaPortReading:
    link_layer = folder.text("link_layer", "link_layer")
    types, netdevs = _gids(folder) if link_layer == "Ethernet" else (None, ())
    return RdmaPortReading(
        port=number,
        state=folder.text("state", "state"),
        link_layer=link_layer,
        rate=folder.text("rate", "rate"),
        gid_types=types,
        gid_netdevs=netdevs,
        errors=folder.errors,
    )


def _gids(port: Folder) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Types and network interfaces of the port's GIDs, each once; an error where one does not say its type.

    The GIDs themselves hold addresses, and stay out of every dump.
    """
    gids = port.folder("gids", "gid_types")
    indexes = sorted(int(name) for name in port.names("gids", "gid_types") if re.fullmatch("[0-9]{1,4}", name))
    if gids is None or not indexes:
        return None, ()
    if len(indexes) > MAX_GIDS:
        port.errors["gid_types"] = "TooMany"
    types: dict[str, None] = {}
    netdevs: dict[str, None] = {}
    for index in indexes[:MAX_GIDS]:
        gid = gids.text(str(index), "gid_types")
        if gid is None or NO_GID.fullmatch(gid):
            continue
        # EINVAL for some kernels where the interface belongs to another network namespace
        kind = port.text(f"gid_attrs/types/{index}", "gid_types")
        netdev = port.text(f"gid_attrs/ndevs/{index}", "gid_netdevs")
        types |= {} if kind is None else {kind: None}
        netdevs |= {} if netdev is None else {netdev: None}
    return tuple(types), tuple(netdevs)
