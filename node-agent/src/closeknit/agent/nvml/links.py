"""The NVLinks of one GPU."""

from collections.abc import Sequence
from typing import Any

import pynvml

from closeknit.agent.discovery.readings.readings import LinkReading
from closeknit.agent.nvml.checked_calls import ask, field
from closeknit.agent.nvml.nvml_messages import ABSENT, LOST

MAX_LINKS = 36  # Rubin's; NVML_NVLINK_MAX_LINKS differs between releases of the binding
# Ids of the speed of links 0 to 11 before Hopper, which has one id for all links.
OLD_LINK_SPEEDS = (84, 85, 86, 87, 88, 89, 132, 133, 134, 135, 136, 137)
HOPPER = (9, 0)  # the compute capability from which the state of a link is a field that knows sleep
ALL_LINKS = 0xFFFFFFFF  # the scope in which NVML's throughput counters are those of all links
BEYOND_LAST = ("InvalidArgument", "NotSupported")  # of the last link, and of a GPU without any


def links(handle: Any, capability: Sequence[int] | None) -> tuple[LinkReading, ...]:
    """The GPU's NVLinks; NVML answers InvalidArgument beyond the last one, and NotSupported where there is none."""
    found: list[LinkReading] = []
    for link in range(MAX_LINKS):
        reading = _link(handle, link, capability)
        if reading.errors.get("p2p") in BEYOND_LAST:
            # Asked twice: one wrong answer would be the end of all links that follow.
            reading = _link(handle, link, capability)
            if reading.errors.get("p2p") in BEYOND_LAST:
                break
        found.append(reading)
        if LOST in reading.errors.values():
            break
    return tuple(found)


def sent_kib(handle: Any) -> int | None:
    """What the GPU has sent over all of its NVLinks; None without a handle, and where it has no such counter."""
    number = pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX
    return None if handle is None else field(handle, {}, "sent", number, ALL_LINKS)


def _link(handle: Any, link: int, capability: Sequence[int] | None) -> LinkReading:
    errors: dict[str, str] = {}
    supported = pynvml.NVML_NVLINK_CAP_P2P_SUPPORTED
    p2p = ask(errors, "p2p", pynvml.nvmlDeviceGetNvLinkCapability, handle, link, supported)
    if not p2p:
        return LinkReading(link=link, p2p=None if p2p is None else False, errors=errors)
    pci = ask(errors, "remote_bus_id", pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
    return LinkReading(
        link=link,
        p2p=True,
        state=_state(handle, link, capability, errors),
        remote_type=ask(errors, "remote_type", pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link),
        # The name of a hidden switch may be bytes that are no text.
        remote_bus_id=None if pci is None else ask(errors, "remote_bus_id", lambda: str(pci.busId)),
        version=ask(errors, "version", pynvml.nvmlDeviceGetNvLinkVersion, handle, link),
        speed_mb_s=_speed(handle, link, errors),
        errors=errors,
    )


def _state(handle: Any, link: int, capability: Sequence[int] | None, errors: dict[str, str]) -> int | None:
    """0 inactive, 1 active, 2 sleep, 3 active with traffic disabled; only the field, from Hopper on, knows 2 and 3."""
    if capability is not None and tuple(capability) >= HOPPER:
        state = field(handle, errors, "state", pynvml.NVML_FI_DEV_NVLINK_GET_STATE, link)
        if errors.get("state") not in ABSENT:
            return state  # or a failure: the old call would take sleep for inactive
        del errors["state"]
    return ask(errors, "state", pynvml.nvmlDeviceGetNvLinkState, handle, link)


def _speed(handle: Any, link: int, errors: dict[str, str]) -> int | None:
    """Speed of a link in MB/s per direction."""
    speed = field(handle, errors, "speed_mb_s", pynvml.NVML_FI_DEV_NVLINK_GET_SPEED, link)
    if errors.get("speed_mb_s") in ABSENT and link < len(OLD_LINK_SPEEDS):
        unread: dict[str, str] = {}
        speed = field(handle, unread, "speed_mb_s", OLD_LINK_SPEEDS[link])
        if unread.get("speed_mb_s") not in ABSENT:
            del errors["speed_mb_s"]
            errors |= unread
    return speed
