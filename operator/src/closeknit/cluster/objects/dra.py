"""Kept fields of ResourceSlices and ResourceClaims of NVIDIA's DRA driver and of DRANET, and of DeviceTaintRules, which
others put on their devices."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import msgspec

from closeknit.api.names import GPU_DRA_DRIVER, NIC_DRA_DRIVER, UNHEALTHY_TAINT, JobKey, child_named
from closeknit.cluster.objects.dranet import NicDevice, NicSlice
from closeknit.cluster.objects.meta import Metadata, Owner, WireStruct
from closeknit.cluster.objects.taints_and_faults import Fault, FaultKind

_PARTITION = re.compile(r"partition([1-9][0-9]?)")  # a node has 16 GPUs behind NVSwitches at most
_KEEP_AWAY = frozenset({"NoSchedule", "NoExecute"})  # effects of a device's taint; Kubernetes takes others for None


class Device(msgspec.Struct, frozen=True):
    """One device of a slice."""

    name: str
    uuid: str | None
    """UUID of the GPU; None if the driver does not give it."""
    whole: bool
    """A whole GPU; False for a MIG device, whose uuid is that of the GPU it is cut from."""
    unusable: Fault | None
    """Why no gang may be planned on it."""
    mig_uuid: str | None = None
    """A MIG device's own; None for a whole GPU, and for a device that the driver makes once it is claimed."""
    partitions: tuple[tuple[int, int], ...] = ()
    """(GPUs, id) of each partition of the node's fabric manager that the GPU is in, by GPUs; none where nothing cuts
    the node, or the GPU is in none."""


class ResourceSlice(msgspec.Struct, frozen=True, dict=True):
    """A part of one node's pool of GPUs."""

    name: str
    node: str
    pool: str
    generation: int
    slice_count: int
    """Number of slices of the pool in this generation."""
    devices: tuple[Device, ...]

    @cached_property
    def uuids(self) -> Mapping[str, str]:
        """UUID of each device with a known one. Computed once: every decision reads it for each claim of a starting
        gang."""
        return {device.name: device.uuid for device in self.devices if device.uuid}

    @cached_property
    def mig_uuids(self) -> Mapping[str, str]:
        """UUID of each MIG device that has one of its own."""
        return {device.name: device.mig_uuid for device in self.devices if device.mig_uuid}


class ResourceClaim(msgspec.Struct, frozen=True):
    """A claim with GPUs or NICs, or with a name that a child of ours may need."""

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    owners: tuple[Owner, ...] = ()
    deletion_timestamp: str | None = None
    allocated: bool = False
    devices: tuple[tuple[str, str], ...] = ()
    """GPUs that it holds, as (pool, device), in the allocation's order; adminAccess holds none."""
    nics: tuple[tuple[str, str], ...] = ()
    """NICs of DRANET that it holds, likewise."""
    reserved_for: tuple[str, ...] = ()
    """Names of the Pods that may use it."""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def is_shared(self) -> bool:
        """Whether a Pod of another name may use it, too: a claim in use stays as long as its Pod."""
        return any(name != self.name for name in self.reserved_for)

    @property
    def job(self) -> JobKey | None:
        """The TrainingJob that may need its name."""
        child = child_named(self.name)
        return JobKey(self.namespace, child.job) if child else None

    @property
    def attempt(self) -> int:
        """The attempt in its name; 0 for no child's name."""
        child = child_named(self.name)
        return child.attempt if child else 0


class DeviceTaintRule(msgspec.Struct, frozen=True):
    """A taint on devices by someone other than the owner of their slices."""

    name: str
    driver: str | None
    """Driver of these devices, like the other fields a selector; None: any."""
    pool: str | None
    device: str | None
    key: str
    effect: str
    uid: str = ""
    """Of one of our own; empty of any other."""

    @property
    def is_ours(self) -> bool:
        """Whether it says what an agent says anyway."""
        return self.key == UNHEALTHY_TAINT

    def taints(self, driver: str, pool: str, device: str) -> bool:
        """Whether it keeps claims from a device. One of ours does until it is taken back, though the GPU is well."""
        return (
            self.effect in _KEEP_AWAY
            and self.driver in {None, driver}
            and self.pool in {None, pool}
            and self.device in {None, device}
        )


class _Attribute(WireStruct, frozen=True):
    string: str | None = None
    number: int | None = msgspec.field(default=None, name="int")
    is_true: bool | None = msgspec.field(default=None, name="bool")


class _Taint(WireStruct, frozen=True):
    key: str = ""
    effect: str = ""


class _Device(WireStruct, frozen=True):
    name: str
    attributes: dict[str, _Attribute] | None = None
    taints: list[_Taint] | None = None
    allow_multiple_allocations: bool | None = None
    consumes_counters: list[Any] | None = None


class _Pool(WireStruct, frozen=True):
    name: str
    generation: int = 0
    resource_slice_count: int = 1


class _SliceSpec(WireStruct, frozen=True):
    driver: str
    pool: _Pool
    node_name: str | None = None
    devices: list[_Device] | None = None


class WireResourceSlice(WireStruct, frozen=True):
    """A ResourceSlice on the wire."""

    metadata: Metadata
    spec: _SliceSpec


class _DeviceTaintSelector(WireStruct, frozen=True):
    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    device_class_name: str | None = None
    selectors: list[Any] | None = None


class _DeviceTaintRuleSpec(WireStruct, frozen=True):
    device_selector: _DeviceTaintSelector | None = None
    taint: _Taint | None = None


class WireDeviceTaintRule(WireStruct, frozen=True):
    """A DeviceTaintRule on the wire."""

    metadata: Metadata
    spec: _DeviceTaintRuleSpec | None = None


class _Result(WireStruct, frozen=True):
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None


class _Results(WireStruct, frozen=True):
    results: list[_Result] | None = None


class _Allocation(WireStruct, frozen=True):
    devices: _Results | None = None


class _Consumer(WireStruct, frozen=True):
    resource: str = ""
    name: str = ""


class _ClaimStatus(WireStruct, frozen=True):
    allocation: _Allocation | None = None
    reserved_for: list[_Consumer] | None = None


class WireResourceClaim(WireStruct, frozen=True):
    """A ResourceClaim on the wire."""

    metadata: Metadata
    status: _ClaimStatus | None = None


def resource_slice(wire: WireResourceSlice) -> ResourceSlice | NicSlice | None:
    """The kept slice; None for another driver's, or one that is not of one node."""
    spec = wire.spec
    if spec.driver == NIC_DRA_DRIVER and spec.node_name:
        return NicSlice(
            name=wire.metadata.name,
            node=spec.node_name,
            pool=spec.pool.name,
            generation=spec.pool.generation,
            slice_count=spec.pool.resource_slice_count,
            devices=tuple(nic for device in spec.devices or () if (nic := _nic(device)) is not None),
        )
    if spec.driver != GPU_DRA_DRIVER or not spec.node_name:
        return None
    return ResourceSlice(
        name=wire.metadata.name,
        node=spec.node_name,
        pool=spec.pool.name,
        generation=spec.pool.generation,
        slice_count=spec.pool.resource_slice_count,
        devices=tuple(_device(device) for device in spec.devices or ()),
    )


def device_taint_rule(wire: WireDeviceTaintRule) -> DeviceTaintRule | None:
    """The kept rule; None for one that keeps no claim from any device: without a selector it selects none.

    Until Kubernetes 1.34 a rule could select by DeviceClass or CEL, too, which are the scheduler's to judge.
    """
    spec = wire.spec or _DeviceTaintRuleSpec()
    selector, taint = spec.device_selector, spec.taint
    if selector is None or taint is None:
        return None
    is_ours = taint.key == UNHEALTHY_TAINT
    if taint.effect not in _KEEP_AWAY and not is_ours:
        return None
    if selector.device_class_name is not None or selector.selectors:
        return None
    uid = (wire.metadata.uid or "") if is_ours else ""
    selected = (selector.driver, selector.pool, selector.device)
    return DeviceTaintRule(wire.metadata.name, *selected, taint.key, taint.effect, uid)


def tainted(rules: Iterable[DeviceTaintRule], driver: str, pool: str, device: str) -> Fault | None:
    """Why no gang may be planned on a device, by the first of these rules; None without one. Our claims tolerate no
    taint."""
    for rule in rules:
        if rule.taints(driver, pool, device):
            return Fault(FaultKind.UNHEALTHY, f"a DeviceTaintRule taints its DRA device {rule.key}:{rule.effect}")
    return None


def _attributes(wire: _Device, driver: str, attribute: str) -> Iterator[_Attribute]:
    """A bare key belongs to the driver's own domain; the qualified spelling means the same."""
    for key in (attribute, f"{driver}/{attribute}"):
        value = (wire.attributes or {}).get(key)
        if value is not None:
            yield value


def _nic(wire: _Device) -> NicDevice | None:
    """The RDMA NIC; None for any other interface, and for one that no claim can pin."""
    address = next((each.string for each in _attributes(wire, NIC_DRA_DRIVER, "pciAddress") if each.string), None)
    is_rdma = any(each.is_true for each in _attributes(wire, NIC_DRA_DRIVER, "rdma"))
    return NicDevice(wire.name, address, _unusable(wire) is None) if is_rdma and address else None


def _device(wire: _Device) -> Device:
    def text(attribute: str) -> str | None:
        return next((each.string for each in _attributes(wire, GPU_DRA_DRIVER, attribute) if each.string), None)

    whole = text("type") in {None, "gpu"}
    own = text("uuid")
    if whole:
        return Device(wire.name, own, whole, _unusable(wire, is_whole_gpu=True), partitions=_partitions(wire))
    return Device(wire.name, text("parentUUID"), whole, _unusable(wire), own if text("type") == "mig" else None)


def _partitions(wire: _Device) -> tuple[tuple[int, int], ...]:
    """Of `partition1`, `partition2` and so on: the id of the partition of so many GPUs that has this one.

    NVIDIA's driver publishes them with its gate FabricManagerPartitioning. It then prepares only claims whose GPUs are
    exactly one partition (device_state.go, resolveFabricPartition).
    """
    found: dict[int, int] = {}
    for key, value in (wire.attributes or {}).items():
        match = _PARTITION.fullmatch(key.removeprefix(f"{GPU_DRA_DRIVER}/"))
        if match is not None and value.number is not None:
            found[int(match[1])] = value.number
    return tuple(sorted(found.items()))


def _unusable(wire: _Device, *, is_whole_gpu: bool = False) -> Fault | None:
    """Why no gang may be planned on a device: tainted, shareable by several claims, or a part of another one.

    Under its gate DynamicMIG, NVIDIA's driver has a whole GPU consume all counters that its MIG devices share
    (partitions.go, PartConsumesCounters). The GPU is whole all the same: a claim on one of its MIG devices holds the
    GPU of their parentUUID.
    """
    for taint in sorted(wire.taints or (), key=lambda taint: taint.key):
        if taint.effect in _KEEP_AWAY:
            return Fault(FaultKind.UNHEALTHY, f"its DRA device is tainted {taint.key}:{taint.effect}")
    if wire.allow_multiple_allocations:
        return Fault(FaultKind.MULTIPLE_ALLOCATIONS)
    if wire.consumes_counters and not is_whole_gpu:
        return Fault(FaultKind.PARTITION)
    return None


def resource_claim(wire: WireResourceClaim) -> ResourceClaim | None:
    """The kept claim; None for one without GPU, NIC and a name that a child may need."""
    metadata = wire.metadata
    status = wire.status or _ClaimStatus()
    owners = metadata.owners
    results = (status.allocation.devices.results if status.allocation and status.allocation.devices else None) or ()

    def held(driver: str) -> tuple[tuple[str, str], ...]:
        return tuple((each.pool, each.device) for each in results if each.driver == driver and not each.admin_access)

    devices, nics = held(GPU_DRA_DRIVER), held(NIC_DRA_DRIVER)
    if not (devices or nics) and child_named(metadata.name) is None:
        return None
    return ResourceClaim(
        namespace=metadata.namespace or "default",
        name=metadata.name,
        uid=metadata.uid or "",
        resource_version=metadata.resource_version or "",
        owners=owners,
        deletion_timestamp=metadata.deletion_timestamp,
        allocated=status.allocation is not None,
        devices=devices,
        nics=nics,
        reserved_for=tuple(
            sorted(consumer.name for consumer in status.reserved_for or () if consumer.resource in {"", "pods"})
        ),
    )
