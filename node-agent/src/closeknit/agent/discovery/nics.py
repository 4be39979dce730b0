"""RDMA NICs of one machine, concluded from its readings. Pure."""

import re
from collections.abc import Sequence

from closeknit.agent.discovery import pci
from closeknit.agent.discovery.readings import PciReading, RdmaPortReading, RdmaReading, Readings
from closeknit.api.nodetopology import Nic, PortState, Support, Transport

RNIC = "4:"  # node_type of iWARP; a channel adapter is "1: CA", EFA "7: unspecified"
ACTIVE = "4:"  # state "4: ACTIVE"
DMA_BUF_KERNEL = (5, 12)  # the first kernel whose verbs take DMA-BUF


def nics(readings: Readings, gpus: Sequence[PciReading | None]) -> list[Nic]:
    """The ports of RDMA devices by name and number, with their PCIe level to each GPU in the order of `gpus`.

    Left out: the management devices of NVSwitches, which look like NICs and lead nowhere, virtual functions beside
    their physical one, whose wire is the same, and ports that do not say what they are.
    """
    devices = {device.address: device for device in readings.pci}
    found = []
    for device in sorted(readings.rdma, key=lambda device: _natural(device.name)):
        if device.is_switch_management or device.is_virtual_function:
            continue
        place = devices.get(device.address or "")
        for port in sorted(device.ports, key=lambda port: port.port):
            transport = _transport(device, port)
            if transport is None or port.state is None:
                continue
            active = port.state.startswith(ACTIVE)
            found.append(
                Nic(
                    name=device.name,
                    port=port.port,
                    pci_address=device.address,
                    numa_node=pci.numa_node(place),
                    transport=transport,
                    state=PortState.ACTIVE if active else PortState.DOWN,
                    rate_gb_per_s=_rate(port.rate) if active else None,  # a port that is down prints a rate of its own
                    netdev=device.netdevs[0] if device.netdevs else None,
                    gpu_levels=_levels(place, gpus),
                )
            )
    return found


def gpu_direct_rdma(readings: Readings) -> Support | None:
    """Whether NICs can reach GPU memory; None where the files that tell were unreadable."""
    kernel = readings.kernel
    if kernel.has_peer_memory:
        return Support.SUPPORTED
    release = re.match(r"(\d+)\.(\d+)", kernel.kernel_release or "")
    if kernel.nvidia_version is None or release is None or kernel.has_peer_memory is None:
        return None
    is_open = "Open Kernel Module" in kernel.nvidia_version
    return Support.LIKELY if is_open and (int(release[1]), int(release[2])) >= DMA_BUF_KERNEL else Support.UNSUPPORTED


def _transport(device: RdmaReading, port: RdmaPortReading) -> Transport | None:
    if device.driver == "efa":
        return Transport.EFA
    if (device.node_type or "").startswith(RNIC):
        return Transport.IWARP
    return {"InfiniBand": Transport.INFINIBAND, "Ethernet": Transport.ROCE}.get(port.link_layer or "")


def _levels(nic: PciReading | None, gpus: Sequence[PciReading | None]) -> list[str]:
    """One level per GPU, or none at all where one is unknown."""
    levels = [pci.level(nic, gpu) if nic is not None and gpu is not None else None for gpu in gpus]
    return [found for found in levels if found is not None] if None not in levels else []


def _rate(text: str | None) -> float | None:
    """Gb/s of "400 Gb/sec (4X NDR)"."""
    match = re.match(r"([0-9.]+) Gb/sec", text or "")
    return float(match[1]) if match else None


def _natural(name: str) -> tuple[str | int, ...]:
    """Sorts mlx5_2 before mlx5_10."""
    return tuple(int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name))
