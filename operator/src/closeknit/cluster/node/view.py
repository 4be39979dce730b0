"""One NodeView from all objects about its node: a pure function of its arguments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from closeknit.api.affinity import is_label_value
from closeknit.api.names import GPU_MEMORY_RESOURCE, GPU_RESOURCE, SHARED_GPU_RESOURCE, SPARE_FOR_LABEL
from closeknit.api.reasons import ExclusionReason
from closeknit.cluster.immutable.heartbeats import STALE_AFTER
from closeknit.cluster.immutable.table import EMPTY
from closeknit.cluster.network.levels import Place
from closeknit.cluster.node.holders import BookedShare, Holding, any_of, holding, one_of
from closeknit.cluster.node.mig_devices import MigHolders, MigOffer, mig_views
from closeknit.cluster.node.node import (
    Exclusion,
    Holder,
    HolderKind,
    MigView,
    NodeView,
    PluginOffer,
    RdmaOffer,
    rdma_offer,
)
from closeknit.cluster.node.slice_pools import SlicePools
from closeknit.cluster.objects.agent_report import AgentReport
from closeknit.cluster.objects.dra import ResourceClaim
from closeknit.cluster.objects.dranet import NicOffer, NicPools, nic_offer
from closeknit.cluster.objects.node_objects import Node
from closeknit.cluster.objects.pod_requests import MOST, Amounts, is_needed
from closeknit.cluster.objects.silence import Quiet, Silence
from closeknit.cluster.objects.taints_and_faults import Fault, FaultKind
from closeknit.cluster.pods.pod import Pod
from closeknit.machine.graph import Machine, partitioned

_DIGITS = 18  # of a number that a label has
# GKE puts these on the nodes of a pool whose GPUs are shared or split (its manual on GPU sharing strategies and on
# multi-instance GPUs); GPU feature discovery it does not run.
_GKE_STRATEGY = "cloud.google.com/gke-gpu-sharing-strategy"  # time-sharing or mps
_GKE_CLIENTS = "cloud.google.com/gke-max-shared-clients-per-gpu"
_GKE_PARTITION = "cloud.google.com/gke-gpu-partition-size"  # a MIG profile; each device is one nvidia.com/gpu


class NicFacts(NamedTuple):
    """The facts about DRANET's NICs on one node."""

    pools: NicPools
    device_class: str | None
    """The DeviceClass to claim them by; None without one known to include all."""
    claims: tuple[ResourceClaim, ...]
    """Claims that hold some, by key."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """All facts about one node; at least one of `node` and `report` exists."""

    name: str
    node: Node | None
    report: AgentReport | None
    pools: SlicePools
    pods: Sequence[Pod]
    """Live Pods on the node, and those that an ended attempt left and that may still be bound to it, by key, without
    Lodgers."""
    unclaimed: Sequence[Pod]
    """Live Pods on the node with some of its GPUs by claims that are not seen allocated yet, by key."""
    lodged: Amounts
    """The Lodgers' use of it."""
    claimable: frozenset[str]
    """Resources of DeviceClasses."""
    functions: frozenset[str]
    """Resources of SR-IOV functions, as the site declares them."""
    claims: Sequence[ResourceClaim]
    """Claims that hold devices of the node's pools, by key."""
    nics: NicFacts | None
    """None where DRANET has none there."""
    lived: datetime | None
    """The last heartbeat of its agent, if too long ago."""
    silence: Silence | None
    """How long neither its kubelet nor its agent has been heard; None while they are."""
    bookings: Sequence[tuple[BookedShare, Pod | None]]
    """Booked shares of jobs on the node, by job, with the Pod of each once one is bound."""

    @property
    def place(self) -> Place:
        """What the levels are read from."""
        return place(self.node, self.report)


def place(node: Node | None, report: AgentReport | None) -> Place:
    """What the levels are read from at a node; at least one of the two is there."""
    machine = report.machine if report else None
    return Place(node.labels if node else {}, machine.nvlink_domain if machine else None)


def node_view(facts: NodeFacts, domains: tuple[str | None, ...], *, nodes_are_known: bool) -> NodeView:
    """The node for placement. Without any Node in the input, `nodes_are_known` is False: each NodeTopology is then a
    Ready, untainted node whose GPUs a device plugin offers."""
    node, report = facts.node, facts.report
    machine = report.machine if report else None
    if report is None or machine is None:
        return NodeView(
            name=facts.name,
            labels=node.labels if node else {},
            taints=node.taints if node else (),
            domains=domains,
            exclusion=_no_machine(facts),
            silence=facts.silence,
            is_there=node is not None or not nodes_are_known,
            is_ready=node is None or node.not_ready is None,
            is_unheard=node is not None and node.is_unheard,
            machine=None,
            topology_generation=report.generation if report else 0,
            usable=(),
            free=(),
            holders={},
            unusable={},
            dra=False,
            plugin=None,
            rdma=None,
        )
    held = holding(machine, report, facts.bookings, facts.pods, _claimed(facts, facts.pools.uuids))
    spare = _spare(node, held.taken, facts) if node else None
    dra = facts.pools.complete and not (node and _is_counted(node))
    if dra:
        machine = partitioned(machine, _partitions(machine, facts.pools.partitions))
    unusable = _unusable(machine, report, facts.pools if dra else None)
    plugin = None if dra else _plugin(facts, machine, held, nodes_are_known=nodes_are_known)
    if not dra and plugin is None:
        fault = facts.pools.incomplete or Fault(FaultKind.NOT_OFFERED)
        if node is not None and _is_shared_by_memory(node):
            fault = Fault(FaultKind.SHARED_BY_MEMORY)
        elif node is not None and not facts.pools.incomplete and (offered := _untold_sharing(node, machine)):
            todo = "run GPU feature discovery there, or see why the agent finds no more"
            fault = Fault(FaultKind.UNTOLD_SHARING, f"{offered} {GPU_RESOURCE} for {len(machine.gpus)}: {todo}")
        unusable = {gpu.index: unusable.get(gpu.index, fault) for gpu in machine.gpus}
    usable = tuple(gpu.index for gpu in machine.gpus if gpu.index not in unusable)
    holders = held.holders
    if dra and (strangers := [*_outside_dra(facts, held), *facts.unclaimed, *_about_to_be_given(facts)]):
        # It is unknown which GPUs they have, or will: it may be any.
        rest = dict.fromkeys((index for index in usable if index not in holders), any_of(strangers))
        holders = dict(sorted({**holders, **rest}.items()))
    is_counted = plugin is not None and not plugin.shared
    unnamed: Mapping[Holder, int] = held.unnamed if is_counted else EMPTY
    if plugin is not None and unnamed and (all_held := _explained_by_count(plugin, usable, held)) is not None:
        plugin, holders, unnamed = replace(plugin, unnamed=0), all_held, EMPTY
    if plugin is not None and plugin.is_replicated and plugin.free > 0:
        holders = {}  # a held replica does not block the next
    nics = _nic_offer(facts, machine, plugin)
    exposed = rdma_offer(node.allocatable, spare, facts.functions) if node and spare else None
    return NodeView(
        name=facts.name,
        labels=node.labels if node else {},
        taints=node.taints if node else (),
        domains=domains,
        exclusion=_exclusion(
            facts, report, machine, unusable, plugin if node else None, nodes_are_known=nodes_are_known
        ),
        machine=machine,
        topology_generation=report.generation,
        usable=usable,
        free=tuple(index for index in usable if index not in holders),
        holders=holders,
        unusable=unusable,
        dra=dra,
        plugin=plugin,
        rdma=RdmaOffer(nics.resource, nics.free) if nics else exposed,
        memlock_bytes=report.memlock_bytes,
        kubelet=report.kubelet,
        hides_levels=report.hides_levels,
        allocatable=node.allocatable if node else None,
        spare=spare,
        nics=nics,
        mig=_mig(facts, report, machine, nodes_are_known=nodes_are_known),
        unnamed=unnamed,
        guessed=held.guessed if is_counted else (),
        restarts_in_place=node is not None and node.restarts_in_place,
        asks_kubelet=report.allocations is not None,
        silence=facts.silence,
        is_there=node is not None or not nodes_are_known,
        is_ready=node is None or node.not_ready is None,
        is_unheard=node is not None and node.is_unheard,
        spare_for=_spare_for(node),
    )


def _spare_for(node: Node | None) -> str:
    """The queue whose spare node it is. What the API server takes for no label is none, in a file."""
    queue = node.labels.get(SPARE_FOR_LABEL, "") if node is not None else ""
    return queue if is_label_value(queue) else ""


def _mig(facts: NodeFacts, report: AgentReport, machine: Machine, *, nodes_are_known: bool) -> tuple[MigView, ...]:
    if not any(gpu.mig_devices for gpu in machine.gpus):
        return ()
    node = facts.node
    return mig_views(
        machine,
        report,
        MigOffer(node, facts.pools, is_known=nodes_are_known, is_single=node is not None and _is_cut(node, machine)),
        MigHolders(
            facts.bookings,
            facts.pods,
            _claimed(facts, facts.pools.mig_uuids),
            [*facts.unclaimed, *_about_to_be_given(facts)],
        ),
    )


def _nic_offer(facts: NodeFacts, machine: Machine, plugin: PluginOffer | None) -> NicOffer | None:
    """Where a DeviceClass stands for the device plugin's GPUs, the scheduler of Kubernetes 1.36 binds no Pod that asks
    the plugin for some and has a claim of another kind."""
    nics = facts.nics
    if nics is None or facts.node is None or (plugin is not None and plugin.resource in facts.claimable):
        return None
    booked = ((name, (share.job.namespace, share.job.name)) for share, _ in facts.bookings for name in share.nics)
    claimed = ((device, claim.key) for claim in nics.claims for device in claim.nics)
    return nic_offer(machine, nics.pools, nics.device_class, booked, claimed)


def _outside_dra(facts: NodeFacts, held: Holding) -> list[Pod]:
    """Pods with unknown GPUs that no claim gave them: from before DRA replaced the device plugin.

    The Node still names the plugin's resource then, at 0, and its kubelet refuses new Pods that ask for it. A kubelet
    that never knew it leaves it out of what a Pod asks, and runs without a GPU any Pod that names the node itself.
    """
    if facts.node is not None and GPU_RESOURCE not in facts.node.capacity:
        return []
    claims = {claim.key for claim in facts.claims}
    return [pod for pod in held.unexplained if not any((pod.namespace, name) in claims for name in pod.claims)]


def _about_to_be_given(facts: NodeFacts) -> list[Pod]:
    """Pods that ended attempts left unbound, whose claim the scheduler may still give GPUs of the node. A claim's
    request is its maker's choice, so it counts only once it is allocated."""
    given = {claim.key for claim in facts.claims}
    return [
        pod
        for pod in facts.pods
        if not pod.node and pod.claims and not any((pod.namespace, name) in given for name in pod.claims)
    ]


def _no_machine(facts: NodeFacts) -> Exclusion:
    report, node = facts.report, facts.node
    if report is not None:
        return Exclusion(ExclusionReason.INVALID_TOPOLOGY, report.invalid or "its NodeTopology cannot be read")
    offers = [f"{number} {name}" for name, number in sorted(node.capacity.items()) if number] if node else []
    offers += (
        [f"{len(facts.pools.gpus)} GPU{'' if len(facts.pools.gpus) == 1 else 's'} by DRA"] if facts.pools.gpus else []
    )
    if not offers:
        return Exclusion(ExclusionReason.NO_TOPOLOGY, "it has no NodeTopology", has_no_gpus=True)
    words = f"it offers {', '.join(offers)} and has no NodeTopology: does its node agent run?"
    return Exclusion(ExclusionReason.NO_TOPOLOGY, words)


def _exclusion(
    facts: NodeFacts,
    report: AgentReport,
    machine: Machine,
    unusable: Mapping[int, Fault],
    plugin: PluginOffer | None,
    *,
    nodes_are_known: bool,
) -> Exclusion | None:
    """The first reason that holds, the plainest first."""
    node = facts.node
    if nodes_are_known and node is None:
        return Exclusion(ExclusionReason.NOT_READY, "it has a NodeTopology but no Node")
    if node is not None and node.not_ready:
        return Exclusion(ExclusionReason.NOT_READY, node.not_ready, node.not_ready_since)
    if facts.silence is not None and facts.silence.quiet >= Quiet.SILENT:
        words = f"its kubelet has not renewed its Lease for {facts.silence.quiet:d} s, and its agent is silent"
        return Exclusion(ExclusionReason.NOT_READY, words)
    if facts.lived is not None:
        minutes = int(STALE_AFTER.total_seconds()) // 60
        # The instant and not its age: the text must stay the same from one decision to the next.
        return Exclusion(
            ExclusionReason.AGENT_STALE,
            f"its agent's last heartbeat was at {facts.lived:%Y-%m-%dT%H:%M:%SZ}, more than {minutes} min ago",
        )
    if report.not_ready:
        return Exclusion(ExclusionReason.UNHEALTHY, report.not_ready)
    if other := _other_count(machine, report, facts.pools, plugin):
        return Exclusion(ExclusionReason.INVALID_TOPOLOGY, other)
    if not machine.gpus:
        return Exclusion(ExclusionReason.UNHEALTHY, "its agent found no GPU")
    faults = [unusable.get(gpu.index) for gpu in machine.gpus]
    if all(fault is not None and fault.kind is FaultKind.UNHEALTHY for fault in faults):
        gpus = (
            f"none of its {len(machine.gpus)} GPUs is healthy" if len(machine.gpus) > 1 else "its one GPU is unhealthy"
        )
        return Exclusion(ExclusionReason.UNHEALTHY, gpus)
    return None


def _other_count(machine: Machine, report: AgentReport, slices: SlicePools, plugin: PluginOffer | None) -> str | None:
    """The mismatch between a machine's GPUs and the number that others offer; None without one.

    A device plugin registers healthy and unhealthy GPUs alike, but at its start may leave out one that does not answer,
    and one that is split by MIG. What ResourceSlices do not name yet, or not any more, is not usable by itself.
    """
    count = len(machine.gpus)
    said = f"its NodeTopology has {count} {'GPU' if count == 1 else 'GPUs'}"
    if plugin is not None and not plugin.shared and plugin.capacity:
        sure = sum(not gpu.mig_enabled and gpu.index not in report.unhealthy for gpu in machine.gpus)
        if not sure <= plugin.capacity <= count:
            return f"{said}, its device plugin {plugin.capacity}"
    named = len(slices.gpus) if slices.complete else 0
    return f"{said}, its ResourceSlices {named}" if named > count else None


def _claimed(facts: NodeFacts, uuids: Mapping[tuple[str, str], str]) -> list[tuple[str, Holder]]:
    """The claims that hold devices with a uuid in `uuids`."""
    return [
        (uuids[device], Holder(HolderKind.CLAIM, claim.namespace, claim.name))
        for claim in facts.claims
        for device in claim.devices
        if device in uuids
    ]


def _partitions(whole: Machine, uuids: frozenset[frozenset[str]] | None) -> tuple[int, ...] | None:
    """Sets of GPUs as masks of positions, ascending; those with a GPU that the machine lacks are left out."""
    if uuids is None:
        return None
    at = {gpu.uuid: 1 << position for position, gpu in enumerate(whole.gpus) if gpu.uuid is not None}
    return tuple(sorted(sum(map(at.__getitem__, found)) for found in uuids if found <= at.keys()))


def _unusable(machine: Machine, report: AgentReport, dra: SlicePools | None) -> dict[int, Fault]:
    """Unusable GPUs, by NVML index, ascending; `dra` where claims bind the node's GPUs."""
    faults: dict[int, Fault] = {}
    for gpu in machine.gpus:
        if gpu.index in report.unhealthy:
            faults[gpu.index] = Fault(FaultKind.UNHEALTHY, report.unhealthy[gpu.index])
        elif gpu.mig_enabled:
            faults[gpu.index] = Fault(FaultKind.MIG)
        elif dra is not None:
            if gpu.uuid is None or gpu.uuid not in dra.gpus:
                faults[gpu.index] = dra.incomplete or Fault(FaultKind.UNNAMED)
            elif fault := dra.gpus[gpu.uuid]:
                faults[gpu.index] = fault
    return faults


def _plugin(facts: NodeFacts, machine: Machine, held: Holding, *, nodes_are_known: bool) -> PluginOffer | None:
    node, report = facts.node, facts.report
    if node is None:
        if nodes_are_known or report is None:
            return None
        whole = [gpu.index for gpu in machine.gpus if not gpu.mig_enabled]
        allocatable = sum(index not in report.unhealthy for index in whole)
        return PluginOffer(allocatable, len(whole), held.requested, sum(held.unnamed.values()), shared=False)
    is_renamed = not node.capacity.get(GPU_RESOURCE) and node.capacity.get(SHARED_GPU_RESOURCE, 0) > 0
    resource = SHARED_GPU_RESOURCE if is_renamed else GPU_RESOURCE
    allocatable = node.allocatable.get(resource, 0)
    capacity = max(node.capacity.get(resource, 0), allocatable)
    if capacity == 0 or _is_shared_by_memory(node) or _untold_sharing(node, machine):
        return None
    if allocatable == 0 and facts.pools.incomplete:
        return None  # the kubelet remembers a device plugin that DRA has replaced, and DRA is not ready yet
    is_cut, is_replicated = _is_cut(node, machine), _is_replicated(node)
    is_shared = is_cut or is_replicated
    return PluginOffer(
        allocatable,
        capacity,
        held.requested,
        0 if is_shared else sum(held.unnamed.values()),
        is_shared,
        is_replicated and not is_cut,
        resource,
        is_narrowed=report is not None and report.kubelet.aligns,
    )


def _is_cut(node: Node, machine: Machine) -> bool:
    """Whether the device plugin counts MIG devices: by the label of GPU feature discovery, which nodes without any
    bear, too, by GKE's of a node pool, or because it counts more than there are GPUs, all of them split."""
    split = [gpu.mig_enabled for gpu in machine.gpus]
    return (
        (any(split) and node.labels.get("nvidia.com/mig.strategy") == "single")
        or bool(node.labels.get(_GKE_PARTITION))
        or (all(split) and 0 < len(split) < _counted(node))
    )


def _is_replicated(node: Node) -> bool:
    """Whether it counts replicas of GPUs: by the labels of GPU feature discovery, or by GKE's own, where the number of
    clients says more than the strategy."""
    labels = node.labels
    clients = labels.get(_GKE_CLIENTS, "")
    strategies = (labels.get("nvidia.com/gpu.sharing-strategy"), None if clients else labels.get(_GKE_STRATEGY))
    return (
        any(_is_several(number) for number in (labels.get("nvidia.com/gpu.replicas", ""), clients))
        or any(strategy not in {None, "none", ""} for strategy in strategies)
        or node.capacity.get(SHARED_GPU_RESOURCE, 0) > 0
    )


def _is_several(number: str) -> bool:
    return number.isdecimal() and int(number[:_DIGITS]) > 1


def _counted(node: Node) -> int:
    """GPUs that the device plugin has registered, healthy or not."""
    return max(node.capacity.get(GPU_RESOURCE, 0), node.allocatable.get(GPU_RESOURCE, 0))


def _untold_sharing(node: Node, machine: Machine) -> int:
    """Number of GPUs of a device plugin that is an unexplained multiple of the existing ones: it shares them, or the
    agent has not found all. Else 0."""
    count, offered = len(machine.gpus), _counted(node)
    if offered <= count or _is_cut(node, machine) or _is_replicated(node):
        return 0
    whole = sum(not gpu.mig_enabled for gpu in machine.gpus)
    return offered if any(number and offered % number == 0 for number in (count, whole)) else 0


def _is_shared_by_memory(node: Node) -> bool:
    """Whether Pods request a part of a GPU's memory, and a scheduler of its own chooses which GPU."""
    return node.allocatable.get(GPU_MEMORY_RESOURCE, 0) > 0


def _is_counted(node: Node) -> bool:
    """Whether a device plugin offers GPUs to Pods by count."""
    return any(node.allocatable.get(resource, 0) > 0 for resource in (GPU_RESOURCE, SHARED_GPU_RESOURCE))


def _explained_by_count(plugin: PluginOffer, usable: tuple[int, ...], held: Holding) -> Mapping[int, Holder] | None:
    """The holder of every remaining GPU, if holders of unnamed GPUs hold as many as remain. None where they hold fewer,
    so that it is unknown which."""
    remaining = [index for index in usable if index not in held.holders]
    if plugin.unnamed < len(remaining) or plugin.free > 0:
        return None
    return dict(sorted({**held.holders, **dict.fromkeys(remaining, one_of(held.unnamed))}.items()))


def _booked_functions(facts: NodeFacts) -> Amounts:
    """What bookings whose Pod is not bound yet hold of SR-IOV functions."""
    shares = (share for share, pod in facts.bookings if pod is None and share.has_functions)
    count = sum(1 for share in shares if facts.functions.isdisjoint(name for name, _ in share.needs))
    return dict.fromkeys(facts.functions, count) if count else {}


def _spare(node: Node, taken: Amounts, facts: NodeFacts) -> Amounts:
    """Free amount of each resource that a Pod can request; 0 where the node is overcommitted.

    Unlimited for a resource of a DeviceClass that the node lacks: the scheduler claims devices for it, and alone knows
    whether there are any.
    """
    lodged, given = facts.lodged, _booked_functions(facts)
    found = {
        resource: max(0, amount - taken.get(resource, 0) - lodged.get(resource, 0) - given.get(resource, 0))
        for resource, amount in node.allocatable.items()
        if amount > 0 and (is_needed(resource) or resource in facts.functions)
    }
    return {**dict.fromkeys(sorted(facts.claimable), MOST), **found} if facts.claimable else found
