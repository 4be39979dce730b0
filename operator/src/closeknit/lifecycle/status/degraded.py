"""What a gang lacks, and the message about it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from closeknit.api.nodetopology import PortState
from closeknit.api.reasons import ConditionReason
from closeknit.api.text.opaque import short
from closeknit.api.trainingjob import MUTABLE, RdmaPolicy
from closeknit.cluster.booking.booking import names
from closeknit.cluster.booking.gang_sidecar import may_have_sidecar, refused_since
from closeknit.cluster.booking.in_place_exit_codes import asks_for_restarts
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node.node import NodeView
from closeknit.cluster.objects.node_objects import RESTARTS_IN_PLACE
from closeknit.launch.environment.environment import Environment, environment
from closeknit.launch.gang import Gang
from closeknit.launch.network import NCCL_TRANSPORTS, Net
from closeknit.launch.remedy import Remedy
from closeknit.launch.template import runs_as, trainer
from closeknit.placement.values.sentences import listed

MIXED = frozenset({Net.NO_NICS, Net.NO_COMMON_TRANSPORT, Net.NO_COMMON_EXPOSURE})
# Fields that the API server lets be changed are named: advice may be about one of them.
FIXED = (
    f"the job was booked, so its spec is fixed but for {listed(sorted(MUTABLE), 'and')}: to change anything else, "
    "delete the job and create it again"
)


@dataclass(frozen=True, slots=True)
class Degradation:
    """What is missing, for the condition Degraded."""

    reason: ConditionReason
    message: str
    is_mended_by_spec: bool = False
    """Whether the message advises to change the spec, or names settings of it that do harm."""

    def told(self, *, is_booked: bool) -> str:
        """The message; for a booked job with what a change of its spec needs."""
        return f"{self.message}; {FIXED}" if self.is_mended_by_spec and is_booked else self.message


NO_IPC_LOCK = Degradation(
    ConditionReason.IPC_LOCK_REFUSED,
    "the namespace's Pod Security level refuses IPC_LOCK; RDMA may fail to register memory",
)


def degradation(gang: Gang, cluster: Cluster) -> Degradation | None:
    """All that a gang lacks, under the most important reason; None where it lacks nothing."""
    return _joined(tuple(_found(gang, cluster)))


# Read again from the condition: the one by `remedies`, the other by the code that makes the next Pods.
_READ_AGAIN = frozenset({ConditionReason.WITHOUT_MULTICAST, ConditionReason.IPC_LOCK_REFUSED})


def together(planned: Degradation | None, seen: Sequence[Degradation]) -> Degradation | None:
    """What a gang lacked from the beginning, joined with later findings, under the newer reason."""
    parts = [*seen, *([] if planned is None else [planned])]
    parts.sort(key=lambda each: each.reason not in _READ_AGAIN)
    return _joined(parts)


def _joined(parts: Sequence[Degradation]) -> Degradation | None:
    """All of them as one, under the reason of the first; None where there are none."""
    if not parts:
        return None
    is_mended_by_spec = any(each.is_mended_by_spec for each in parts)
    return Degradation(parts[0].reason, "; ".join(each.message for each in parts), is_mended_by_spec)


def _found(gang: Gang, cluster: Cluster) -> Iterator[Degradation]:
    """All findings. The first must stay first: it is read again when its attempt is no longer listed."""
    if Remedy.WITHOUT_NVLS in gang.remedies:
        yield Degradation(ConditionReason.WITHOUT_MULTICAST, Remedy.WITHOUT_NVLS.value)
    if gang.net in MIXED and any(_kinds(cluster.nodes[worker.node]) for worker in gang.workers):
        yield Degradation(ConditionReason.OVER_SOCKETS, _mixed(gang, cluster), is_mended_by_spec=True)
    if (words := _unoffered(gang, cluster)) is not None:
        is_advice = gang.net is not Net.OPEN or not _asked(gang)
        yield Degradation(ConditionReason.RDMA_NOT_OFFERED, words, is_mended_by_spec=is_advice)
    if (words := _unmarked(gang)) is not None:
        yield Degradation(ConditionReason.TRAFFIC_CLASS_NOT_MARKED, words)
    if (words := _unlocked(gang, cluster)) is not None:
        yield Degradation(ConditionReason.MEMORY_LOCK_BOUNDED, words, is_mended_by_spec=True)
    if (words := _on_one_node(gang, cluster)) is not None:
        yield Degradation(ConditionReason.VOLUME_ON_ONE_NODE, words, is_mended_by_spec=True)
    if gang.uses_rdma and not gang.ipc_lock:
        yield NO_IPC_LOCK
    restart = gang.job.spec.restart
    if restart is not None and restart.stall_deadline is not None and not gang.sidecar_image:
        why = _why_no_sidecar(gang, cluster)
        yield Degradation(
            ConditionReason.STALL_UNSEEN, f"restart.stallDeadline means nothing: no progress is seen, {why}"
        )
    if (words := harmed(environment(gang, 0))) is not None:
        yield Degradation(ConditionReason.HARMFUL_SETTINGS, words, is_mended_by_spec=True)
    if asks_for_restarts(gang.job.spec) and not gang.sidecar_image:
        yield Degradation(
            ConditionReason.RESTARTS_IN_NEW_PODS, f"it restarts in new Pods, {_why_no_sidecar(gang, cluster)}"
        )


def _why_no_sidecar(gang: Gang, cluster: Cluster) -> str:
    """Why a gang has no sidecar, and what to do."""
    if (before := refused_since(gang.job.status)) is not None:
        return f"because in attempt {before.number} {before.message or 'its sidecar did not start'}"
    if not may_have_sidecar(gang.job.spec):
        return (
            "because its template leaves the trainer's command to the image, so that nothing tells how it ended, or "
            "has restart rules of its own for it"
        )
    if not cluster.sidecar_image:
        return "because the operator is told no image for the sidecar of such gangs (--sidecar-image)"
    nodes = [member.node for member in gang.members if not cluster.nodes[member.node].restarts_in_place]
    if not nodes:
        return (
            "because its Pods were made without the sidecar for that: the API server refused them with it, or the "
            "operator was told no image for it then; have an administrator admit its requests and its image "
            f"{cluster.sidecar_image}"
        )
    return (
        f"because the kubelets of {names(list(dict.fromkeys(nodes)))} do not declare the feature {RESTARTS_IN_PLACE}, "
        "which is on from Kubernetes 1.36"
    )


def harmed(made: Environment) -> str | None:
    """The template's own settings that do harm; None without any."""
    if not made.hazards:
        return None
    told = ", ".join(dict.fromkeys(hazard.name for hazard in made.hazards))
    return f"settings of its template make it slow, wrong or impossible: {told} (status.environment.warnings)"


def _mixed(gang: Gang, cluster: Cluster) -> str:
    """The nodes that keep the others from RDMA, and what to do."""
    alike: dict[str, list[str]] = {}
    for worker in gang.workers:
        view = cluster.nodes[worker.node]
        how = f" by {worker.offered}" if worker.offered is not None and gang.net is Net.NO_COMMON_EXPOSURE else ""
        alike.setdefault(f"{_kinds(view) or 'no RDMA NIC'}{how}", []).append(worker.node)
    found = "; ".join(f"{names(nodes)}: {words}" for words, nodes in alike.items())
    return (
        f"all ranks talk over sockets, because {gang.net.value}: {found}; "
        f"set network.rdma: {RdmaPolicy.REQUIRED} to wait for nodes that have them alike"
    )


def _on_one_node(gang: Gang, cluster: Cluster) -> str | None:
    """The volume that attaches to one node at a time and that Pods of several nodes share: kube-scheduler ignores this,
    and kubelets wait for ever. Some drivers attach nothing, so it may do no harm."""
    claims = cluster.volumes_of(gang.job).one_node if len(gang.workers) > 1 else ()
    if not claims:
        return None
    return (
        f"PersistentVolumeClaim {short(claims[0])} is ReadWriteOnce, and its Pods run on {len(gang.workers)} nodes: "
        "most storage attaches such a volume to one node at a time, and the Pods of the others never start; use a "
        "claim of ReadWriteMany, or one of ReadOnlyMany"
    )


def _unlocked(gang: Gang, cluster: Cluster) -> str | None:
    """Nodes where a non-root trainer may not lock the memory that RDMA registers: IPC_LOCK is only for root."""
    user = runs_as(gang.job.spec.template.spec)
    if not gang.uses_rdma or user in (None, 0):
        return None
    views = (cluster.nodes[worker.node] for worker in gang.workers)
    bounded = [view.name for view in views if view.memlock_bytes is not None and view.memlock_bytes >= 0]
    if not bounded:
        return None
    return (
        f"its trainer is not root, for whom IPC_LOCK means nothing, and on {names(bounded)} containers may lock little "
        "memory, so that RDMA may fail to register it; have the container runtime started with LimitMEMLOCK=infinity, "
        "or let the trainer run as root"
    )


def _unmarked(gang: Gang) -> str | None:
    """Why a traffic class changes nothing."""
    name = gang.job.spec.network.traffic_class
    if name is None or not gang.is_spread:
        return None
    if gang.net is not Net.VERBS:
        return f"traffic class {name} marks nothing, because its ranks do not talk over InfiniBand or RoCE"
    if gang.traffic_class is None:
        return (
            f"traffic class {name} marks nothing, because ClusterTopology default no longer declares it; have an "
            "administrator add it to spec.fabric.trafficClasses"
        )
    if not gang.is_marked:
        kinds = " and ".join(sorted(transport for transport in gang.transports if transport))
        return f"traffic class {name} marks nothing, because it is declared without a value for {kinds}"
    return None


def _unoffered(gang: Gang, cluster: Cluster) -> str | None:
    """The NICs that its Pods do not get, why, and what to do; None where none is missing."""
    if gang.net is Net.VENDOR and not gang.uses_rdma and not gang.has_more_interfaces:
        return (
            f"its Pods get no interface of the fabric of {_platforms(gang)}; give them its networks, its libraries and "
            "its script in the template, as its maker describes, or set network.rdma: Disabled"
        )
    if gang.uses_rdma and gang.asks_for_host_network and any(worker.has_functions for worker in gang.workers):
        return (
            "its template puts the Pods on their nodes' network, into which no interface of an SR-IOV function comes, "
            "so that NCCL may find no address there; remove hostNetwork, or set network.rdma: Disabled"
        )
    if gang.net is not Net.OPEN:
        return None
    lacking: dict[str, list[str]] = {}
    for worker in gang.workers:
        view = cluster.nodes[worker.node]
        if why := _lacks(view):
            lacking.setdefault(f"{_kinds(view)}, which {why}", []).append(worker.node)
    if not lacking:
        return None
    found = "; ".join(f"{names(nodes)}: {words}" for words, nodes in lacking.items())
    if asked := _asked(gang):
        return f"RDMA NICs come into its Pods only by {', '.join(asked)}, which its template asks for: {found}"
    return (
        f"its Pods get no RDMA NIC, so that NCCL may fall back to TCP: {found}; have a device plugin offer them as "
        "rdma/..., ask for them in the template by the name that they have, or set network.rdma: Disabled"
    )


def _platforms(gang: Gang) -> str:
    return " and ".join(sorted(platform.value for platform in gang.platforms if platform is not None))


def _lacks(view: NodeView) -> str | None:
    if view.rdma is None:
        return "no resource offers to Pods"
    return f"have no share left in {view.rdma.resource}" if view.rdma.free < 1 else None


def _kinds(view: NodeView) -> str:
    """`8 EFA NICs`, or `4 InfiniBand and 2 RoCE NICs`, of one node; empty where NCCL could use none."""
    nics = view.machine.nics if view.machine else ()
    found = Counter(nic.transport for nic in nics if nic.state is PortState.ACTIVE)
    kinds = [f"{found[transport]} {transport}" for transport in NCCL_TRANSPORTS if found[transport]]
    noun = "NIC" if sum(found[transport] for transport in NCCL_TRANSPORTS) == 1 else "NICs"
    return f"{' and '.join(kinds)} {noun}" if kinds else ""


def _asked(gang: Gang) -> list[str]:
    """Extended resources that the user's container requests: one may be the NICs'."""
    resources = trainer(gang.job.spec.template.spec).get("resources") or {}
    asked = {name for field in ("limits", "requests") for name in resources.get(field) or {}}
    return sorted(name for name in asked if "/" in name)
