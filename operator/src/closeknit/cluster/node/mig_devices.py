"""The MIG devices of one node: how a Pod gets one, which are unusable, and who holds the others.

Claims name a device by its uuid. A device plugin hands devices of one profile out by count and chooses by itself, so
that there what is asked for and what is left is counted as well: a device in use but unknown is
taken off the end. Which of them that is means nothing, for those of a profile are alike.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from closeknit.api.names import GPU_RESOURCE, MIG_RESOURCE_PREFIX
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.node.holders import BookedShare, Told, any_of, devices_of, told_of
from closeknit.cluster.node.node import Holder, HolderKind, MigView
from closeknit.cluster.node.slice_pools import SlicePools
from closeknit.cluster.objects.agent_report import AgentReport
from closeknit.cluster.objects.node_objects import Node
from closeknit.cluster.objects.taints_and_faults import Fault, FaultKind
from closeknit.cluster.pods.pod import Pod
from closeknit.machine.graph import Machine


def mig_resource(profile: str) -> str:
    """Name of a profile's devices at NVIDIA's device plugin under its strategy mixed: `1g.18gb+me` becomes
    `nvidia.com/mig-1g.18gb.me`."""
    return f"{MIG_RESOURCE_PREFIX}{profile.replace('+', '.')}"


@dataclass(frozen=True, slots=True)
class MigOffer:
    """How Pods get the MIG devices of a node."""

    node: Node | None
    pools: SlicePools
    is_known: bool
    """Whether there are Nodes at all; without any, a device plugin is assumed to offer every device."""
    is_single: bool
    """Whether the device plugin counts them as GPUs."""

    @property
    def is_counted(self) -> bool:
        """Whether a device plugin offers any device of the node."""
        found = self.node.allocatable.items() if self.node is not None else ()
        return any(amount > 0 and name.startswith((GPU_RESOURCE, MIG_RESOURCE_PREFIX)) for name, amount in found)

    def way(self, uuid: str, profile: str) -> tuple[Binding, Fault | None]:
        """How a Pod gets one device, or why it cannot."""
        if self.node is None:
            return Binding.BEST_EFFORT, Fault(FaultKind.NOT_OFFERED) if self.is_known else None
        if uuid in self.pools.mig and not self.is_counted:
            return Binding.DRA, self.pools.mig[uuid]
        if self.node.allocatable.get(mig_resource(profile), 0) > 0:
            return Binding.BEST_EFFORT, None
        if self.is_single:
            return Binding.BEST_EFFORT, Fault(FaultKind.SINGLE_STRATEGY)
        return Binding.BEST_EFFORT, self.pools.incomplete or Fault(FaultKind.NOT_OFFERED)


@dataclass(frozen=True, slots=True)
class MigHolders:
    """Possible holders of a node's MIG devices."""

    bookings: Sequence[tuple[BookedShare, Pod | None]]
    """With the Pod of each once one is bound."""
    pods: Sequence[Pod]
    """Live ones on the node, by key."""
    claims: Sequence[tuple[str, Holder]]
    """(uuid of a MIG device, holder), by claim."""
    coming: Sequence[Pod]
    """Pods with claims that the scheduler has allocated unseen, or may still allocate any device of the node."""


def mig_views(machine: Machine, report: AgentReport, offer: MigOffer, held: MigHolders) -> tuple[MigView, ...]:
    """The MIG devices of a machine, by GPU and uuid."""
    told = told_of(report)
    holders = _holders(held, told)
    found = []
    for gpu in machine.gpus:
        for device in gpu.mig_devices:
            binding, fault = offer.way(device.uuid, device.profile)
            if gpu.index in report.unhealthy:
                fault = Fault(FaultKind.UNHEALTHY, report.unhealthy[gpu.index])
            holder = holders.get(device.uuid)
            found.append(MigView(device.uuid, device.profile, device.memory_bytes, gpu.index, binding, fault, holder))
    if offer.node is None:
        return tuple(found)
    views = {view.uuid: view for view in found}
    for kind in dict.fromkeys((view.profile, view.binding) for view in found):
        alike = [view for view in found if (view.profile, view.binding) == kind]
        views.update((view.uuid, view) for view in _counted(alike, offer.node, held, told))
    return tuple(views.values())


def _holders(held: MigHolders, told: Told) -> Mapping[str, Holder]:
    """By uuid. A Pod of a booking that the plugin chose for has what the kubelet says, once it does."""
    found: dict[str, Holder] = {}
    booked: set[tuple[str, str]] = set()
    for share, pod in held.bookings:
        if not share.mig_device:
            continue
        holder = Holder(HolderKind.JOB, share.job.namespace, share.job.name)
        given = devices_of(pod, told) if pod is not None and share.binding is not Binding.DRA else ()
        for uuid in given or (share.mig_device,):
            found.setdefault(uuid, holder)
        if pod is not None:
            booked.add(pod.key)
    for pod in held.pods:
        if pod.mig_count and pod.key not in booked:
            for uuid in devices_of(pod, told):
                found.setdefault(uuid, Holder(HolderKind.POD, pod.namespace, pod.name))
    for uuid, holder in held.claims:
        found.setdefault(uuid, holder)
    return found


def _counted(alike: Sequence[MigView], node: Node, held: MigHolders, told: Told) -> Iterator[MigView]:
    """Devices of one profile, without those in unknown use."""
    resource = mig_resource(alike[0].profile)
    uuids = {view.uuid for view in alike}
    booked = {pod.key for share, pod in held.bookings if share.mig_device and pod is not None}
    # A node that never had the resource gives no Pod anything of it, whatever the Pod asks for.
    is_there = resource in node.capacity or resource in node.allocatable
    asking = [pod for pod in held.pods if pod.requests.get(resource)] if is_there else []
    nameless = [pod for pod in asking if pod.key not in booked and uuids.isdisjoint(devices_of(pod, told))]
    if alike[0].binding is Binding.DRA:
        # Pods of before DRA replaced the device plugin, or that are about to be given any of them.
        strangers = [*nameless, *held.coming]
        yield from (replace(view, holder=any_of(strangers)) if view.is_free and strangers else view for view in alike)
        return
    offered = max(node.allocatable.get(resource, 0), node.capacity.get(resource, 0))
    if offered > len(alike):
        yield from (replace(view, fault=view.fault or Fault(FaultKind.OVERSOLD)) for view in alike)
        return
    requested = sum(pod.requests[resource] for pod in asking) + sum(
        share.mig_device in uuids for share, pod in held.bookings if pod is None and share.binding is not Binding.DRA
    )
    allocatable = node.allocatable.get(resource, 0)
    gone = [view.uuid for view in alike if view.is_free][max(0, allocatable - requested) :]
    unhealthy = max(
        0, sum(view.fault is None for view in alike) - allocatable
    )  # to the plugin, which does not say which
    who = any_of(nameless) if nameless else next((view.holder for view in alike if view.holder is not None), None)
    taken = set(gone[: max(0, len(gone) - unhealthy)]) if who is not None else set()
    for view in alike:
        if view.uuid in taken:
            yield replace(view, holder=who)
        else:
            yield replace(view, fault=Fault(FaultKind.NOT_OFFERED)) if view.uuid in gone else view
