"""What is around the GPUs, where a file of sysfs or procfs could not be read this time: as it was read last. Pure.

A file that is not there is an answer: a module was unloaded, a device was taken out. Any other error is none.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from closeknit.agent.discovery.readings.carried import kept
from closeknit.agent.discovery.readings.readings import (
    CpuReading,
    KernelReading,
    RdmaPortReading,
    RdmaReading,
    Reading,
    Readings,
)

ANSWERS = ("ENOENT", "ENOTDIR", "NotConfigured", "NotTold")  # words that say that there is no such fact
CPU_LINES = ("cpu_model", "has_hypervisor")  # of the kernel's facts: lines of /proc/cpuinfo, which fail together

R = TypeVar("R", bound=Reading)


def around(last: Readings, new: Readings) -> Readings:
    """`new`, with what could not be read of PCI, RDMA and kernel as `last` has it, which may itself be remembered."""
    pci = _listed({each.address: each for each in last.pci}, {each.address: each for each in new.pci}, new, "pci")
    rdma = _listed({each.name: each for each in last.rdma}, {each.name: each for each in new.rdma}, new, "rdma")
    return msgspec.structs.replace(
        new,
        pci=tuple(_facts(before, now) for before, now in pci),
        lists_capture_cards=new.lists_capture_cards or (_is_failed(new.errors, "pci") and last.lists_capture_cards),
        rdma=tuple(_device(before, now) for before, now in rdma),
        kernel=_kernel(last.kernel, new.kernel),
    )


def _listed(last: Mapping[str, R], new: Mapping[str, R], readings: Readings, folder: str) -> list[tuple[R, R]]:
    """Each device as it was and as it is, by name; one that is not listed for an error is as it was."""
    failed = {folder} if not new else set()
    hidden = {
        name: device
        for name, device in last.items()
        if name not in new and any(_is_failed(readings.errors, fact) for fact in (*failed, f"{folder}/{name}"))
    }
    found = sorted((dict(new) | hidden).items()) if hidden else new.items()
    return [(last.get(name, device), device) for name, device in found]


def _is_failed(errors: Mapping[str, str], fact: str) -> bool:
    return fact in errors and errors[fact] not in ANSWERS


def _facts(last: R, new: R) -> R:
    """The facts that an error hides, of a reading without its parts."""
    errors: dict[str, str] = getattr(new, "errors", {})
    return kept(last, new, [name for name in errors if _is_failed(errors, name) and hasattr(new, name)])


def _device(last: RdmaReading, new: RdmaReading) -> RdmaReading:
    before, now = ({port.port: port for port in each.ports} for each in (last, new))
    hidden = {
        number: port
        for number, port in before.items()
        if number not in now and any(_is_failed(new.errors, fact) for fact in ("ports", f"ports/{number}"))
    }
    ports = (_port(before.get(number, port), port) for number, port in sorted((now | hidden).items()))
    found = _facts(last, new)
    if _is_failed(new.errors, "is_switch_management"):  # one file tells both
        found = msgspec.structs.replace(found, card_uuid=last.card_uuid)
    return msgspec.structs.replace(found, ports=tuple(ports))


def _port(last: RdmaPortReading, new: RdmaPortReading) -> RdmaPortReading:
    found = _facts(last, new)
    # Addresses are read of an Ethernet port alone, and a table that lacks one entry may lack the one that counts.
    if _is_failed(new.errors, "link_layer") or _is_failed(new.errors, "gid_types"):
        found = msgspec.structs.replace(found, gid_types=last.gid_types)
    if _is_failed(new.errors, "link_layer") or _is_failed(new.errors, "gid_netdevs"):
        found = msgspec.structs.replace(found, gid_netdevs=last.gid_netdevs)
    return found


def _kernel(last: KernelReading, new: KernelReading) -> KernelReading:
    is_silent = _is_failed(new.errors, "cpu")
    found = kept(last, _facts(last, new), CPU_LINES, is_silent)
    facts = [name for name in CpuReading.__struct_fields__ if name not in ("errors", "sockets")]
    cpu = kept(last.cpu, _facts(last.cpu, new.cpu), facts, is_silent)
    return msgspec.structs.replace(found, cpu=cpu)
