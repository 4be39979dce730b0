"""Nodes that refused a Pod of a job, and GPUs that were not given to one: the job avoids them for a while.

All of it is read from the ended attempts in the job's status, so that a restart of the operator forgets none.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob_status import EndedAttempt, UnfitNode
from closeknit.cluster.booking.booking import names
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node.node import NodeView
from closeknit.cluster.objects.nic_exposure import nic_exposure
from closeknit.cluster.pods.pod import Pod
from closeknit.lifecycle.attempt.own_pods import is_own
from closeknit.lifecycle.status.conditions import moment, timestamp
from closeknit.lifecycle.status.pauses import CLOCK_SKEW, failed_starts, is_between, lingers_from

# Other Pods mostly hold what a scheduler or a kubelet lacks on a node, and they come and go unannounced: the node is
# tried again at the pace of people.
AVOIDED_FOR = timedelta(minutes=10)
KEPT_NODES = 16  # of one attempt, as the schema bounds them
_TOLD_ATTEMPTS = 2  # in the words of a refusal
_TOLD_PARTS = 4  # nodes of each of them
_NEVER = datetime.max.replace(tzinfo=UTC)


Unfit = Mapping[str, Collection[str]]
"""Nodes that ended an attempt, each with the uuids of the GPUs or the MIG device that it did not give; without any, the
whole node."""


@dataclass(frozen=True, slots=True)
class AvoidedNodes:
    """The nodes that a job avoids now, and the GPUs that it does not take."""

    nodes: frozenset[str] = frozenset()
    devices: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """UUIDs of GPUs and MIG devices of other nodes, by node."""
    until: datetime | None = None
    """When the first of them may be taken again though it has not changed. Also of nodes that have changed, and are not
    avoided now: they may change back."""
    words: str = ""
    """Which they are, why, and until when, for people."""


NOWHERE = AvoidedNodes()


def avoided_nodes(job: TrainingJob, cluster: Cluster, now: datetime) -> AvoidedNodes:
    """The nodes that the job avoids now: they refused a Pod of it lately, and have not changed since."""
    found: list[tuple[EndedAttempt, datetime, list[UnfitNode]]] = []
    known: set[tuple[str, str | None]] = set()
    ends: list[datetime] = []
    for attempt in reversed(job.status.attempts):
        if not attempt.unfit:
            continue
        ended = moment(attempt.ended)
        until = ended + AVOIDED_FOR
        if not is_between(ended - CLOCK_SKEW, now, until):  # another replica's clock may be ahead of ours
            continue
        ends.append(until)
        stuck = _overdue(job, attempt.number, ended, cluster)
        new = [each for each in attempt.unfit if not known.issuperset(_parts(each)) and (each.name, None) not in known]
        same = [each for each in new if _is_same(each, cluster, stuck)]
        if same:
            found.append((attempt, until, same))
            known.update(part for each in same for part in _parts(each))
    if not ends:
        return NOWHERE
    nodes = frozenset(name for name, device in known if device is None)
    devices: dict[str, frozenset[str]] = {}
    for name, device in sorted((name, device) for name, device in known if device is not None and name not in nodes):
        devices[name] = devices.get(name, frozenset()) | {device}
    return AvoidedNodes(
        nodes,
        devices,
        until=min(ends),
        words="; ".join(
            f"{_told(same)} avoided until {timestamp(until)}"
            f" since attempt {attempt.number} ended there: {attempt.message or attempt.reason}"
            for attempt, until, same in found[:_TOLD_ATTEMPTS]
        ),
    )


def tried_in_vain(job: TrainingJob, cluster: Cluster, now: datetime) -> frozenset[str]:
    """Nodes on which nobody makes room for the job now: it could not start there, and they have not changed since."""
    failed = failed_starts(job.status, now)
    found = set[str]()
    for attempt in failed.attempts if failed is not None else ():
        stuck = _overdue(job, attempt.number, moment(attempt.ended), cluster) if attempt.unfit else ()
        found.update(each.name for each in attempt.unfit or () if not each.devices and _is_same(each, cluster, stuck))
    return frozenset(found)


def _parts(unfit: UnfitNode) -> list[tuple[str, str | None]]:
    """The devices of it that are avoided, or the whole node."""
    return [(unfit.name, device) for device in unfit.devices or (None,)]


def _told(same: Sequence[UnfitNode]) -> str:
    """Which they are, with the verb."""
    whole = names([each.name for each in same if not each.devices])
    parts = [f"{len(each.devices)} of the GPUs of {each.name}" for each in same if each.devices]
    told = [*([whole] if any(not each.devices for each in same) else []), *parts[:_TOLD_PARTS]]
    return f"{' and '.join(told)} {'is' if len(same) == 1 and not parts else 'are'}"


def unfit(nodes: Unfit, job: TrainingJob, cluster: Cluster, now: datetime) -> list[UnfitNode] | None:
    """The nodes as they are now, to be stored with the attempt that ends by them; None without any."""
    views = ((cluster.nodes.get(name), devices) for name, devices in sorted(nodes.items()))
    stuck = _overdue(job, job.status.attempt or 1, moment(timestamp(now)), cluster)
    found = [
        UnfitNode(name=view.name, devices=sorted(devices) or None, state=_state(view, stuck))
        for view, devices in views
        if view is not None
    ]
    return found[:KEPT_NODES] or None


def _overdue(job: TrainingJob, attempt: int, ended: datetime, cluster: Cluster) -> tuple[Pod, ...]:
    """Own Pods that outlived their time when this attempt ended, and still exist: those of earlier attempts, and its
    own long after their grace period."""
    return tuple(
        pod
        for pod in cluster.pods_of(job.key)
        if is_own(pod, job)
        and pod.is_live
        and (
            (pod.attempt or 0) < attempt
            or (
                pod.attempt == attempt
                and pod.deletion_timestamp is not None
                and lingers_from(pod.deletion_timestamp, _NEVER) <= ended
            )
        )
    )


def _is_same(unfit: UnfitNode, cluster: Cluster, stuck: Iterable[Pod]) -> bool:
    view = cluster.nodes.get(unfit.name)
    return view is not None and _state(view, stuck) == unfit.state


def _state(view: NodeView, stuck: Iterable[Pod]) -> str:
    """What people and agents change of a node, and which Pods are `stuck` there. Other resources of Pods are left out:
    our own leave the node with the attempt."""
    plugin = view.plugin and (view.plugin.allocatable, view.plugin.capacity, view.plugin.shared)
    offered = (view.allocatable or {}).items()  # which of these a Pod would be given depends on what others hold
    rdma = sorted(name for name, amount in offered if amount and nic_exposure(name))
    rdma += view.rdma.functions if view.rdma else ()
    rdma += [] if view.nics is None else [view.nics.resource, *view.nics.addresses.values()]
    held_by = sorted(pod.name for pod in stuck if pod.node in {"", view.name})  # one that is nowhere was meant for it
    facts = (
        sorted(view.labels.items()),
        [(taint.key, taint.value, taint.effect) for taint in view.taints],
        view.exclusion and (view.exclusion.reason.value, view.exclusion.since),
        view.topology_generation,
        [(index, fault.kind.value) for index, fault in view.unusable.items()],
        view.dra,
        plugin,
        rdma,
        held_by,
    )
    return sha256(repr(facts).encode()).hexdigest()[:16]
