"""The pools of ResourceSlices of one node: whether DRA offers its GPUs, and which device is which GPU."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from closeknit.api.names import GPU_DRA_DRIVER
from closeknit.cluster.objects.dra import DeviceTaintRule, ResourceSlice, tainted
from closeknit.cluster.objects.taints_and_faults import Fault, FaultKind


@dataclass(frozen=True, slots=True)
class SlicePools:
    """The contents of a node's slices."""

    complete: bool
    """Whether a complete pool names at least one whole GPU by uuid."""
    incomplete: Fault | None
    """Which pool is incomplete; the scheduler allocates nothing from it."""
    gpus: Mapping[str, Fault | None]
    """uuid of each whole GPU in complete pools -> why no gang may be planned on it, None for a good one."""
    uuids: Mapping[tuple[str, str], str]
    """(pool, device) -> uuid of the GPU, or of the GPU that a MIG device is cut from; older generations included, for
    claims outlive them."""
    mig: Mapping[str, Fault | None]
    """The same as `gpus` of MIG devices, by uuids of their own."""
    mig_uuids: Mapping[tuple[str, str], str]
    """(pool, device) -> uuid of the MIG device itself; older generations included."""
    partitions: frozenset[frozenset[str]] | None = None
    """Sets of uuids of whole GPUs, the only ones that a claim can have; None where a claim can have any."""


NO_POOLS = SlicePools(complete=False, incomplete=None, gpus={}, uuids={}, mig={}, mig_uuids={})


def slice_pools(slices: Iterable[ResourceSlice], rules: Sequence[DeviceTaintRule] = ()) -> SlicePools:
    """The contents of one node's slices, with the taints of `rules`; only the newest generation of each pool counts."""
    by_pool: dict[str, list[ResourceSlice]] = {}
    for entry in sorted(slices, key=lambda entry: (entry.pool, entry.generation, entry.name)):
        by_pool.setdefault(entry.pool, []).append(entry)
    if not by_pool:
        return NO_POOLS
    incomplete = None
    gpus: dict[str, Fault | None] = {}
    uuids: dict[tuple[str, str], str] = {}
    mig: dict[str, Fault | None] = {}
    mig_uuids: dict[tuple[str, str], str] = {}
    members: dict[tuple[str, int, int], set[str]] = {}
    for pool, all_slices in by_pool.items():
        for entry in all_slices:
            uuids.update({(pool, device): uuid for device, uuid in entry.uuids.items()})
            mig_uuids.update({(pool, device): uuid for device, uuid in entry.mig_uuids.items()})
        newest = [entry for entry in all_slices if entry.generation == all_slices[-1].generation]
        expected = max(entry.slice_count for entry in newest)
        if len(newest) < expected:
            incomplete = Fault(FaultKind.INCOMPLETE_POOL, f"{len(newest)} of {expected}")
            continue
        for device in (device for entry in newest for device in entry.devices):
            if device.whole and device.uuid:
                gpus[device.uuid] = device.unusable or tainted(rules, GPU_DRA_DRIVER, pool, device.name)
                for size, partition in device.partitions:
                    members.setdefault((pool, size, partition), set()).add(device.uuid)
            elif device.mig_uuid:
                mig[device.mig_uuid] = device.unusable or tainted(rules, GPU_DRA_DRIVER, pool, device.name)
    # One of which a GPU is missing is none: its claim would not be prepared.
    whole = frozenset(frozenset(found) for (_, size, _), found in members.items() if len(found) == size)
    return SlicePools(bool(gpus), incomplete, gpus, uuids, mig, mig_uuids, whole if members else None)


def uuid_of(device: str, slices: Iterable[ResourceSlice]) -> str | None:
    """The uuid of a device of this one pool: a MIG device's own, else from `SlicePools.uuids`; None without either."""
    named = [
        (entry.generation, entry.name, uuid)
        for entry in slices
        if (uuid := entry.mig_uuids.get(device) or entry.uuids.get(device)) is not None
    ]
    return max(named)[2] if named else None
