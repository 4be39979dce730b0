"""Whether the Pods really got the planned GPUs."""

from collections.abc import Sequence
from dataclasses import replace

from closeknit.api.reasons import ConditionReason, ConditionType
from closeknit.api.trainingjob_status import Actual, Binding
from closeknit.cluster.booking.booking import BookingShare, names
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node.node import MigView, NodeView
from closeknit.cluster.pods.pod import Pod
from closeknit.lifecycle.attempt.launched_gang import uuids
from closeknit.lifecycle.attempt.own_pods import own_claim
from closeknit.lifecycle.status.conditions import Observation
from closeknit.machine.islands import are_joined_alike
from closeknit.placement.values.sentences import count

_TOLD = 4  # nodes of a message
_TOLD_GPUS = 16


def verified(
    cluster: Cluster, shares: Sequence[BookingShare], pods: Sequence[Pod | None]
) -> tuple[tuple[BookingShare, ...], Observation]:
    """The shares with `actual` filled in, and its meaning for the job. Pods are by node rank, None for a finished one
    that is gone.

    A fact that is no longer to be had (a finished Pod's claim has no allocation) does not take back what was found.
    """
    checked = tuple(_checked(cluster, share, pod) for share, pod in zip(shares, pods, strict=True))
    wrong = [
        difference(cluster, share, pod)
        for share, pod in zip(checked, pods, strict=True)
        if share.actual is Actual.MISMATCH
    ]
    unknown = [share.node for share in checked if share.actual is Actual.UNKNOWN]
    kind = ConditionType.PLACEMENT_VERIFIED
    if wrong:
        return checked, Observation(kind, False, ConditionReason.MISMATCH, f"other GPUs than planned: {few(wrong)}")
    if unknown:
        message = f"nobody has told which GPUs the Pods got on {names(unknown)}"
        return checked, Observation(kind, None, ConditionReason.NOT_REPORTED, message)
    return checked, Observation(kind, True, ConditionReason.VERIFIED, _as_planned(cluster, checked))


def _as_planned(cluster: Cluster, shares: Sequence[BookingShare]) -> str:
    """Fills in the MIG device, among which a device plugin may have chosen."""
    views = ((share, cluster.nodes.get(share.node)) for share in shares if share.mig_device)
    named = [f"MIG device {share.mig_device} ({profile(view, share.mig_device)})" for share, view in views]
    return f"its Pod has {named[0]}, of the planned profile" if named else "every Pod has the planned GPUs"


def difference(cluster: Cluster, share: BookingShare, pod: Pod | None) -> str:
    """A clause with what was planned and what a Pod got instead; GPUs by their NVML indexes."""
    asked = [share.mig_device] if share.mig_device else sorted(share.gpus)
    planned = f"{share.node} was to give {_listed(asked)}"
    if pod is None:
        return f"{planned} and gave others"
    if pod.node != share.node:
        return f"{planned}, and Pod {pod.name} is on {pod.node}"
    return f"{planned} and gave {_listed(_shown(cluster, share, pod))}"


def few(clauses: Sequence[str]) -> str:
    """The first few of them."""
    more = f"; {count(len(clauses) - _TOLD, 'more node')} likewise" if len(clauses) > _TOLD else ""
    return f"{'; '.join(clauses[:_TOLD])}{more}"


def got(cluster: Cluster, share: BookingShare, pod: Pod) -> tuple[str, ...] | None:
    """UUIDs of the GPUs that a Pod has on the share's node, by its claim's allocation, else by the kubelet's report.
    None where neither names all."""
    claim = own_claim(cluster, pod) if share.binding is Binding.DRA else None
    told = cluster.devices.claimed(claim) if claim is not None and claim.devices else cluster.devices.reported(pod)
    return None if told is None or None in told else tuple(sorted(filter(None, told)))


def _shown(cluster: Cluster, share: BookingShare, pod: Pod) -> list[int | str]:
    view = cluster.nodes.get(share.node)
    machine = None if view is None else view.machine
    indexes = {} if machine is None else {gpu.uuid: gpu.index for gpu in machine.gpus}
    known = [indexes.get(uuid, uuid) for uuid in got(cluster, share, pod) or ()]
    return sorted(known, key=lambda each: (isinstance(each, str), each))


def _listed(gpus: Sequence[int | str]) -> str:
    shown = ",".join(map(str, gpus[:_TOLD_GPUS])) or "others"
    return f"{shown},..." if len(gpus) > _TOLD_GPUS else shown


def is_mismatched(cluster: Cluster, shares: Sequence[BookingShare], pods: Sequence[Pod | None]) -> bool:
    """Whether `verified` would find other GPUs than planned. It copies no share, because it runs whenever a Pod of a
    starting gang changes."""
    return any(
        (share.actual if pod is None else _found(cluster, share, pod)) is Actual.MISMATCH
        for share, pod in zip(shares, pods, strict=True)
    )


def _checked(cluster: Cluster, share: BookingShare, pod: Pod | None) -> BookingShare:
    if pod is not None and (device := chosen(cluster, share, pod)) is not None:
        share = replace(share, gpus=(device.gpu,), mig_device=device.uuid)
    elif pod is not None and (others := _as_good(cluster, share, pod)) is not None:
        share = replace(share, gpus=others)
    actual = share.actual if pod is None else _found(cluster, share, pod)
    return share if actual is share.actual else replace(share, actual=actual)


def _found(cluster: Cluster, share: BookingShare, pod: Pod) -> Actual:
    is_as_good = chosen(cluster, share, pod) is not None or _as_good(cluster, share, pod) is not None
    actual = Actual.VERIFIED if is_as_good else _actual(cluster, share, pod)
    return share.actual if actual is Actual.UNKNOWN and share.actual is not None else actual


def chosen(cluster: Cluster, share: BookingShare, pod: Pod) -> MigView | None:
    """The MIG device that the device plugin chose for a Pod, if it has the planned profile: devices of a profile are
    alike, and the booking only needed one."""
    view = cluster.nodes.get(share.node)
    if not share.mig_device or share.binding is Binding.DRA or view is None or pod.node != share.node:
        return None
    given = got(cluster, share, pod) or ()
    asked = profile(view, share.mig_device)
    return next((device for device in view.mig if (device.uuid,) == given and device.profile == asked), None)


def _as_good(cluster: Cluster, share: BookingShare, pod: Pod) -> tuple[int, ...] | None:
    """The GPUs, as local ranks, that the device plugin gave a Pod in place of others, if any GPUs of the machine are
    joined alike: the planned ones were only a guess."""
    view = cluster.nodes.get(share.node)
    if share.binding is not Binding.BEST_EFFORT or share.mig_device or view is None or pod.node != share.node:
        return None
    machine, given = view.machine, got(cluster, share, pod) or ()
    if machine is None or len(given) != len(share.gpus) or uuids(view, share) is None:
        return None
    positions = tuple(position for position, gpu in enumerate(machine.gpus) if gpu.uuid in given)
    if len(positions) != len(given) or not (len(given) == 1 or are_joined_alike(machine)):
        return None
    return tuple(machine.gpus[position].index for position in machine.in_bus_order(positions))


def profile(view: NodeView | None, uuid: str) -> str:
    """Profile of a MIG device; empty where the node no longer has it."""
    return next((device.profile for device in view.mig if device.uuid == uuid), "") if view is not None else ""


def _actual(cluster: Cluster, share: BookingShare, pod: Pod) -> Actual:
    """By what it got, else by that the node has no other GPUs. That is compared with the booking, for what the Pod says
    of itself its namespace may have written."""
    if not pod.node:
        return Actual.UNKNOWN
    if pod.node != share.node:
        return Actual.MISMATCH
    given = got(cluster, share, pod)
    if given is not None:
        view = cluster.nodes.get(share.node)
        planned = None if view is None else uuids(view, share)
        if planned is not None and all(planned):
            return Actual.VERIFIED if given == tuple(sorted(planned)) else Actual.MISMATCH
    return Actual.VERIFIED if share.binding is Binding.WHOLE_NODE else Actual.UNKNOWN
