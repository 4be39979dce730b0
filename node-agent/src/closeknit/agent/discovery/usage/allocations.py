"""Which container the kubelet gave which GPUs, of what its PodResources API answered. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import ValidationError

from closeknit.agent.discovery.health.machine_health import MachineFinding
from closeknit.api.names import GPU_DRA_DRIVER
from closeknit.api.nodetopology_status import Allocation
from closeknit.api.reasons import MachineConditionType

# Uuids of NVIDIA's GPUs and MIG devices, as its device plugin names them to the kubelet under every strategy; the old
# form of a MIG device is MIG-GPU-<uuid>/<instance>/<compute instance>.
_GPU = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]{1,80}")
_NVIDIA = "nvidia.com/"  # resources whose every device is a GPU, or a part of one
_MAX_NAMED = 3  # devices that a message names


class AllocationReason(StrEnum):
    """Why the condition AllocationsKnown is what it is."""

    LISTED = "Listed"
    KUBELET_UNREACHABLE = "KubeletUnreachable"
    KUBELET_UNSUPPORTED = "KubeletUnsupported"
    KUBELET_BUSY = "KubeletBusy"
    KUBELET_SLOW = "KubeletSlow"
    KUBELET_FAILED = "KubeletFailed"
    UNKNOWN_DEVICE = "UnknownDevice"
    TOO_MANY = "TooManyAllocations"


@dataclass(frozen=True, slots=True, order=True)
class DraDevice:
    """A device as DRA names it: unique on its node."""

    driver: str
    pool: str
    device: str


@dataclass(frozen=True, slots=True)
class Grant:
    """What the kubelet gave one container of an active Pod."""

    namespace: str
    pod: str
    container: str
    plugged: tuple[tuple[str, str], ...] = ()
    """Of device plugins: name of the resource and id of the device, in any order."""
    claimed: tuple[DraDevice, ...] = ()
    """Of ResourceClaims."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The kubelet could not be asked."""

    reason: AllocationReason
    message: str


@dataclass(frozen=True, slots=True)
class Allocations:
    """What is known; `held` is None where it is not known of every container."""

    held: tuple[Allocation, ...] | None
    finding: MachineFinding
    is_old: bool = field(default=False, compare=False)
    """Whether it is what was known before, as the kubelet did not answer this time."""


MAX_ALLOCATIONS = 1024  # as in NodeTopologyStatus
MAX_DEVICES = 256  # as in Allocation


def gpu_claims(grants: Sequence[Grant]) -> frozenset[DraDevice]:
    """The devices of NVIDIA's DRA driver, whose uuids the node's ResourceSlices know."""
    return frozenset(each for grant in grants for each in grant.claimed if each.driver == GPU_DRA_DRIVER)


def allocations(answer: Sequence[Grant] | Unanswered, uuids: Mapping[DraDevice, str]) -> Allocations:
    """Who holds which GPUs, in the order of namespace, Pod and container, uuids sorted; not who holds none.

    All or nothing: a reader of the list takes what is not in it as free.
    """
    if isinstance(answer, Unanswered):
        return _unknown(answer.reason, answer.message)
    held: list[tuple[Grant, list[str]]] = []
    unknown: list[str] = []
    for grant in sorted(answer, key=lambda each: (each.namespace, each.pod, each.container)):
        devices: set[str] = set()
        for resource, device in grant.plugged:
            # A replica of a shared GPU is its uuid and a number.
            uuid = device.partition("::")[0]
            if _GPU.fullmatch(uuid):
                devices.add(uuid)
            elif resource.startswith(_NVIDIA):
                unknown.append(f"{resource} {device!r}")
        for each in grant.claimed:
            if each in uuids:
                devices.add(uuids[each])
            elif each.driver == GPU_DRA_DRIVER:
                unknown.append(f"device {each.device!r} of pool {each.pool!r}")
        if devices:
            held.append((grant, sorted(devices)))
    if unknown:
        names = ", ".join(unknown[:_MAX_NAMED])
        who, verb = ("1 device", "has") if len(unknown) == 1 else (f"{len(unknown)} devices", "have")
        return _unknown(
            AllocationReason.UNKNOWN_DEVICE,
            f"{who} that the kubelet gave to containers {verb} no known uuid: {names[:300]}.",
        )
    if len(held) > MAX_ALLOCATIONS or any(len(devices) > MAX_DEVICES for _, devices in held):
        return _unknown(AllocationReason.TOO_MANY, f"{len(held)} containers hold more devices than can be published.")
    try:
        published = tuple(
            Allocation(namespace=each.namespace, pod=each.pod, container=each.container, devices=devices)
            for each, devices in held
        )
    except ValidationError:
        return _unknown(AllocationReason.KUBELET_FAILED, "The kubelet tells of names that no Pod can have.")
    finding = MachineFinding(
        MachineConditionType.ALLOCATIONS_KNOWN,
        "True",
        AllocationReason.LISTED,
        "The kubelet says who holds which GPUs.",
    )
    return Allocations(published, finding)


def held_lately(before: Allocations | None, now: Allocations) -> frozenset[str] | None:
    """The devices that containers hold, or held one answer ago; None where the holders are unknown now.

    A container that ends between a reading of the GPUs and the kubelet's answer is in no other list than the last.
    """
    if now.held is None or now.is_old:
        return None
    known = (*now.held, *((before and before.held) or ()))
    return frozenset(device for allocation in known for device in allocation.devices)


def _unknown(reason: AllocationReason, message: str) -> Allocations:
    return Allocations(None, MachineFinding(MachineConditionType.ALLOCATIONS_KNOWN, "False", reason, message))
