"""What was read of a machine before stands in for what could not be read now. Pure.

One failed call must not change what a machine is: its NodeTopology would get a new generation, and every gang there
would lose its place. So a fact that was read once of this GPU, under this driver, stays as it was read last until it is
*read* differently. The error stays beside it: a fact is not made true by being remembered.
"""

from collections.abc import Mapping

import msgspec

from closeknit.agent.discovery.readings import pci
from closeknit.agent.discovery.readings.carried import kept
from closeknit.agent.discovery.readings.carried_host import around
from closeknit.agent.discovery.readings.readings import (
    DOWN_STATES,
    DRIVER_FACTS,
    UP_STATES,
    GpuReading,
    HealthReading,
    LinkReading,
    MigDeviceReading,
    PairReading,
    Readings,
)

# What says where a link leads, and what it is worth; one that is down need not say either, or says 0.
BUILT = ("remote_type", "remote_bus_id")
RATED = ("version", "speed_mb_s")


def remembered(last: Readings | None, new: Readings) -> Readings:
    """`new`, with what failed in it as `last` has it, which may itself be remembered.

    Nothing of NVML is remembered over a change of the driver, nor of a GPU over one of its MIG mode, which resets it. A
    GPU is known by its uuid, without one by its PCI address, and without either by its index, unless another has it.
    """
    if last is None:
        return new
    new = around(last, new)
    if _differ(last.driver_version, new.driver_version):
        return new
    new = kept(last, new, DRIVER_FACTS, is_silent="driver" in new.errors)
    if not new.gpus and new.errors.keys() & {"driver", "gpus"}:
        return msgspec.structs.replace(new, gpus=last.gpus, pairs=last.pairs)
    before = _matched(last.gpus, new.gpus)
    gpus = tuple(_gpu(before[gpu.index], gpu) if gpu.index in before else gpu for gpu in new.gpus)
    same = {index for index, gpu in before.items() if gpu.index == index}
    return msgspec.structs.replace(new, gpus=gpus, pairs=_pairs(last.pairs, new.pairs, same))


def _matched(last: tuple[GpuReading, ...], new: tuple[GpuReading, ...]) -> Mapping[int, GpuReading]:
    """Index of a GPU now -> the same GPU as it was read last."""
    by_uuid = {gpu.uuid: gpu for gpu in last if gpu.uuid is not None}
    by_address = {gpu.bus_id: gpu for gpu in last if gpu.bus_id is not None}
    by_index = {gpu.index: gpu for gpu in last}
    found = {}
    for gpu in new:
        old = by_uuid.get(gpu.uuid or "") or by_address.get(gpu.bus_id or "")
        if old is not None and not _differ(old.uuid, gpu.uuid) and not _differ(old.bus_id, gpu.bus_id):
            found[gpu.index] = old
    taken = {old.index for old in found.values()}
    for gpu in new:
        if gpu.uuid is None and gpu.bus_id is None and gpu.index in by_index and gpu.index not in taken:
            found[gpu.index] = by_index[gpu.index]
    return {gpu.index: found[gpu.index] for gpu in new if gpu.index in found and not _is_reset(found[gpu.index], gpu)}


def _is_reset(last: GpuReading, new: GpuReading) -> bool:
    return last.mig_mode is not None and new.mig_mode is not None and last.mig_mode[0] != new.mig_mode[0]


def _gpu(last: GpuReading, new: GpuReading) -> GpuReading:
    is_silent = "handle" in new.errors
    follows = {"mig_devices": "mig_mode", "c2c_link_mb_s": "c2c_links"}  # asked only where the other was answered
    simple = [
        name
        for name in GpuReading.__struct_fields__
        if name not in ("errors", "links", "health", "mig_devices", *follows)
    ]
    known = kept(last, new, simple, is_silent)
    c2c_link_mb_s = new.c2c_link_mb_s
    if c2c_link_mb_s is None and (new.errors.keys() & {"c2c_links", "c2c_link_mb_s"} or is_silent):
        c2c_link_mb_s = last.c2c_link_mb_s
    if new.errors.keys() & {"mig_mode", "mig_devices"} or is_silent:
        mig_devices = last.mig_devices
    else:
        mig_devices = _mig_devices(last.mig_devices, new.mig_devices)
    health = new.health if not is_silent else last.health
    if health is not None and last.health is not None:
        health = kept(last.health, health, [name for name in HealthReading.__struct_fields__ if name != "errors"])
    return msgspec.structs.replace(
        known,
        health=health,
        c2c_link_mb_s=c2c_link_mb_s,
        mig_devices=mig_devices,
        links=_links(last.links, new.links, is_silent),
    )


def _mig_devices(last: tuple[MigDeviceReading, ...], new: tuple[MigDeviceReading, ...]) -> tuple[MigDeviceReading, ...]:
    """Devices have no number of their own: those of before are the same if nothing that was read speaks against it."""
    names = ("uuid", "name", "memory_mib")
    if len(last) != len(new) or any(
        _differ(getattr(old, name), getattr(device, name))
        for old, device in zip(last, new, strict=True)
        for name in names
    ):
        return new
    return tuple(kept(old, device, names) for old, device in zip(last, new, strict=True))


def _links(last: tuple[LinkReading, ...], new: tuple[LinkReading, ...], is_silent: bool) -> tuple[LinkReading, ...]:
    before = {link.link: link for link in last}
    links = [_link(before[link.link], link) if link.link in before else link for link in new]
    if is_silent:  # it was lost before it came to these
        links += [link for number, link in before.items() if number >= len(new)]
    return tuple(links)


def _link(last: LinkReading, new: LinkReading) -> LinkReading:
    if new.p2p is None:
        return msgspec.structs.replace(last, errors=last.errors | new.errors)  # what was unknown is so still
    found = kept(last, new, ("state", *BUILT, *RATED))
    if found.state not in DOWN_STATES:
        return found
    found = msgspec.structs.replace(found, was_up=last.was_up or last.state in UP_STATES)
    is_lost = pci.address(new.remote_bus_id) is None  # a link that is down may name any remote end
    known = {
        name: getattr(last, name)
        for name in (*(BUILT if is_lost else ()), *RATED)
        if getattr(last, name) is not None and (is_lost or not getattr(found, name))
    }
    return msgspec.structs.replace(found, **known)


def _pairs(last: tuple[PairReading, ...], new: tuple[PairReading, ...], same: set[int]) -> tuple[PairReading, ...]:
    """`same`: the GPUs that have the index that they had before."""
    pairs = {(pair.a, pair.b): pair for pair in new}
    for old in last:
        ends = old.a, old.b
        if same.issuperset(ends):
            names = ("common_ancestor", "p2p_nvlink", "p2p_read")
            pairs[ends] = kept(old, pairs[ends], names) if ends in pairs else old
    return tuple(pairs[ends] for ends in sorted(pairs))


def _differ(one: object, other: object) -> bool:
    """Whether both were read, and differently."""
    return one is not None and other is not None and one != other
