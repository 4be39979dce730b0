"""GPUs and NICs of a running gang that their node's agent, a device's taint or the kubelet calls ill: what ends the run
at once, what waits for the next restart, and what is only told.

A GPU that computes no more ends the run: its process has died, or hangs in its driver. Any other illness may leave the
training as it is, and a restart would cost more than it gains: it is told, and the next attempt takes other devices.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType

from closeknit.api.nodetopology import PortState
from closeknit.api.reasons import ConditionReason, ConditionType, GpuReason
from closeknit.api.trainingjob_status import Binding, BlamedDevice
from closeknit.cluster.booking.booking import BookingShare
from closeknit.cluster.node.node import NodeView
from closeknit.cluster.objects.taints_and_faults import FaultKind
from closeknit.lifecycle.attempt.attempt import Attempt
from closeknit.lifecycle.attempt.avoided_nodes import Unfit
from closeknit.lifecycle.attempt.launched_gang import uuids
from closeknit.lifecycle.attempt.verification import got
from closeknit.lifecycle.status.conditions import found, moment
from closeknit.lifecycle.status.degraded import Degradation
from closeknit.lifecycle.status.pauses import is_between
from closeknit.placement.values.sentences import count

# After these a GPU runs nothing until it is reset, by NVIDIA's XID catalog (46 and 62: it stopped; 48 and 140: a double
# bit error; 79: it fell off its bus; 95: an uncontained error; 119, 120: its system processor; 143: it does not start).
DEAD = frozenset({f"XID{number}" for number in (46, 48, 62, 79, 95, 119, 120, 140, 143)}) | {GpuReason.GPU_LOST}
_TOLD = 4  # devices in a message
# The agent looks every few seconds, and each change of words is a write of the job's whole status.
TOLD_APART = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class IllDevice:
    """One GPU or NIC of a gang that is not well."""

    share: BookingShare
    device: str
    """`GPU 3` or `NIC mlx5_0:1`."""
    uuid: str
    """Of a GPU; empty for a NIC, and for a GPU without one."""
    why: str
    """The reasons given."""
    is_dead: bool
    """Whether it works no more, so that the run ends."""

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU."""
        return not self.device.startswith("NIC")

    def __str__(self) -> str:
        return f"{self.device} of node {self.share.node} ({self.why})"


def ill_devices(attempt: Attempt) -> tuple[IllDevice, ...]:
    """Those of the gang, dead ones first, then in rank order."""
    found: list[IllDevice] = []
    for share, pod in zip(attempt.booking.shares, attempt.pods, strict=True):
        view = attempt.subject.cluster.nodes.get(share.node)
        if view is None or view.machine is None or share.server is not None or share.succeeded:
            continue
        given = None if pod is None else got(attempt.subject.cluster, share, pod)
        called = frozenset() if pod is None else attempt.subject.cluster.devices.called_ill(pod)
        found += _gpus(view, share, given if given is not None else uuids(view, share) or (), called)
        down = {f"{nic.name}:{nic.port}" for nic in view.machine.nics if nic.state is PortState.DOWN}
        found += [IllDevice(share, f"NIC {nic}", "", "its port is down", False) for nic in share.nics if nic in down]
    return tuple(sorted(found, key=lambda each: not each.is_dead))


def _gpus(view: NodeView, share: BookingShare, held: Iterable[str], called: frozenset[str]) -> list[IllDevice]:
    """Those of the GPUs and MIG devices held, by uuid; `called` are those that the kubelet calls unhealthy."""
    if view.machine is None or not (view.unusable or called):
        return []
    indexes = {gpu.uuid: gpu.index for gpu in view.machine.gpus}
    on = {device.uuid: device.gpu for device in view.mig}
    found = []
    for uuid in held:
        index = on.get(uuid, indexes.get(uuid))
        fault = None if index is None else view.unusable.get(index)
        if fault is not None and fault.kind is FaultKind.UNHEALTHY:
            is_dead = not DEAD.isdisjoint(fault.detail.split(", "))
            found.append(IllDevice(share, f"GPU {index}", uuid, fault.detail or "unhealthy", is_dead))
        elif uuid in called and index is not None:
            found.append(IllDevice(share, f"GPU {index}", uuid, "its kubelet calls it unhealthy", False))
    return found


def unfit(ill: Iterable[IllDevice]) -> Unfit:
    """What the next attempt avoids: an ill GPU where claims choose GPUs, else its node, and the node of a NIC."""
    devices: dict[str, tuple[str, ...]] = {}
    whole: set[str] = set()
    for each in ill:
        node = each.share.node
        if each.uuid and each.share.binding is Binding.DRA:
            devices[node] = (*devices.get(node, ()), each.uuid)
        else:
            whole.add(node)
    return MappingProxyType({**devices, **dict.fromkeys(sorted(whole), ())})


def blamed(ill: Iterable[IllDevice]) -> tuple[BlamedDevice, ...]:
    """What is to blame for an end by these: a GPU, or its node where more of it is ill, or a NIC is."""
    by_node: dict[str, list[IllDevice]] = {}
    for each in ill:
        by_node.setdefault(each.share.node, []).append(each)
    return tuple(
        BlamedDevice(node=node, gpu=(found[0].uuid or None) if len(found) == 1 else None)
        for node, found in sorted(by_node.items())
    )


def words(ill: Sequence[IllDevice]) -> str:
    """`GPU 3 of node gpu-7 (XID79), and 2 more devices`."""
    more = f", and {count(len(ill) - _TOLD, 'more device')}" if len(ill) > _TOLD else ""
    return f"{', '.join(map(str, ill[:_TOLD]))}{more}"


def silent_until(attempt: Attempt, ill: Degradation | None) -> datetime | None:
    """Until when nothing new is told of the devices of a running gang: one that flaps is told, and taken back, at most
    every TOLD_APART. None where it is told now."""
    subject = attempt.subject
    conditions = subject.job.status.conditions
    degraded, running = found(conditions, ConditionType.DEGRADED), found(conditions, ConditionType.RUNNING)
    since: datetime | None = None
    if degraded is not None and degraded.status == "True" and degraded.reason == ConditionReason.DEVICE_UNHEALTHY:
        since = subject.answers.told_at
    elif degraded is not None and degraded.status == "False" and running is not None and ill is not None:
        taken_back = moment(degraded.last_transition_time)
        since = taken_back if taken_back > moment(running.last_transition_time) else None
    if since is None or not is_between(since, subject.now, since + TOLD_APART):
        return None
    return since + TOLD_APART


def told(attempt: Attempt) -> Degradation | None:
    """What a running gang is told of its ill devices; None where all are well."""
    ill = ill_devices(attempt)
    if not ill:
        return None
    return Degradation(
        ConditionReason.DEVICE_UNHEALTHY,
        f"{words(ill)}; the run goes on, and a restart takes other devices",
    )
