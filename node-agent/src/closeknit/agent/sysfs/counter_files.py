"""Counters of RDMA ports and of the interfaces of programs."""

import re
from collections.abc import Sequence
from pathlib import Path

from closeknit.agent.discovery.readings.readings import RdmaReading
from closeknit.agent.sysfs.folder import Folder, root_folder
from closeknit.agent.sysfs.rdma import DEVICES

WORD_BYTES = 4  # of port_xmit_data and port_rcv_data
# Of InfiniBand's own counters, and of those that EFA has instead, in bytes.
COUNTERS = (("counters/port_xmit_data", "counters/port_rcv_data"), ("hw_counters/tx_bytes", "hw_counters/rx_bytes"))
MAX_NETWORK_BYTES = 1 << 18  # a thousand interfaces
LOOPBACK = "lo"
INIT = 1  # the first process of the host, in the network of the node
_LINE = re.compile(r"^\s*([^\s:]{1,15}):\s*((?:\d{1,20}\s+){15}\d{1,20})\s*$")


def rdma_bytes(root: Path, devices: Sequence[RdmaReading]) -> dict[str, int]:
    """What each port of these devices has sent and received; IP over InfiniBand taken off where it can be seen."""
    top = root_folder(root, {})
    found = {}
    for device in devices:
        for port in device.ports:
            folder = top.folder(f"{DEVICES}/{device.name}/ports/{port.port}")
            moved = None if folder is None else _moved(folder)
            if moved is not None:
                own = device.netdevs if port.link_layer == "InfiniBand" else ()
                found[f"{device.name}:{port.port}"] = moved - sum(_of_netdev(top, device.name, each) for each in own)
    return found


def interface_bytes(root: Path, pid: int) -> dict[str, int] | None:
    """What each interface in the network of this process has sent and received, without the loopback.

    None where it cannot be read, or where its network is the node's, which is everybody's.
    """
    top = root_folder(root, {})
    own, host = _interfaces(top, pid), _interfaces(top, INIT)
    return None if own is None or host is None or own.keys() == host.keys() else own


def _moved(port: Folder) -> int | None:
    for (sent, received), size in zip(COUNTERS, (WORD_BYTES, 1), strict=True):
        out, into = port.number(sent, "sent"), port.number(received, "received")
        if out is not None and into is not None:
            return (out + into) * size
    return None


def _of_netdev(top: Folder, device: str, netdev: str) -> int:
    folder = f"{DEVICES}/{device}/device/net/{netdev}/statistics"
    found = [top.number(f"{folder}/{name}", "netdev") for name in ("tx_bytes", "rx_bytes")]
    return sum(number for number in found if number is not None)


def _interfaces(top: Folder, pid: int) -> dict[str, int] | None:
    content = top.content(f"proc/{pid}/net/dev", "net", MAX_NETWORK_BYTES)
    if content is None:
        return None
    found = {}
    for line in content.decode(errors="replace").splitlines():
        match = _LINE.match(line)
        if match is not None and match[1] != LOOPBACK:
            numbers = match[2].split()
            found[match[1]] = int(numbers[0]) + int(numbers[8])
    return found
