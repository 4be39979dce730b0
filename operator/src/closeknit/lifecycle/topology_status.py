"""Status of the cluster as a whole: each ClusterTopology's levels and fields without effect, each node with a silent
agent, and each node by which runs ended."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from hashlib import sha256
from itertools import pairwise
from typing import NamedTuple

from closeknit.api.cluster_summary import ClusterSummary
from closeknit.api.clustertopology import RESERVED_LEVELS, ClusterTopologyStatus, Level, LevelStatus
from closeknit.api.names import DEFAULT_CLUSTER_TOPOLOGY
from closeknit.api.nodetopology_status import LemonStatus, RunEnd
from closeknit.api.objects import ClusterTopology
from closeknit.api.reasons import EventAction, EventReason, ExclusionReason, TopologyConditionType, TopologyReason
from closeknit.cluster.booking.booking import names
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node.node import NodeView
from closeknit.lifecycle.attempt.subject import NOTE_MAX_LENGTH
from closeknit.lifecycle.overview.summary import news_of
from closeknit.lifecycle.restart.lemons import record_of
from closeknit.lifecycle.status.conditions import Observation, observed
from closeknit.lifecycle.writes.plan import Notice
from closeknit.placement.refusals.demand_words import SET_UP
from closeknit.placement.values.sentences import count, listed

MOST_TOLD = 16  # objects; one counts, and only administrators make more of them
# Of a level whose names are used again in every domain around it there are as many domains as pairs of names, at least
# twice as many as outer domains. Of a level that is listed inside what it contains there are as many as outer ones, and
# few more where some node bears a wrong label.
_PAIRS_PER_OUTER = 1.1
_NODE_NAME = 253 - 17  # characters of it in an Event's name, before a dot and a digest
_KEYS_COMPARED = 1000  # labels, for the one that may have been meant; nodes have some dozens


class Mistake(NamedTuple):
    """A field of a spec that has no effect, or that cannot be meant."""

    reason: TopologyReason
    words: str


class TopologyNews(NamedTuple):
    """A status to store, and its object."""

    topology: ClusterTopology
    status: ClusterTopologyStatus


class LemonNews(NamedTuple):
    """What to store with a NodeTopology."""

    node: str
    run_ends: tuple[RunEnd, ...] | None
    lemon: LemonStatus | None
    notice: Notice | None
    """The Event where its node has become a lemon."""


def topology_news(cluster: Cluster, now: datetime, glance: ClusterSummary | None = None) -> tuple[TopologyNews, ...]:
    """The statuses to store now; the one that counts has `glance`, the cluster at a glance."""
    found = sorted(cluster.topologies.values(), key=lambda each: (not _counts(each), each.metadata.name))
    news = (TopologyNews(each, topology_status(each, cluster, now, glance)) for each in found[:MOST_TOLD])
    return tuple(each for each in news if each.status != each.topology.status)


def silences(cluster: Cluster) -> dict[str, Notice]:
    """The Event of each node with a silent agent: only that agent writes its labels and its NodeTopology, and they keep
    their last values. The same Event as long as the silence lasts."""
    found: dict[str, Notice] = {}
    for view in cluster.nodes.values():
        if view.exclusion is not None and is_silent(view):
            words = (
                f"no job is placed here: {view.exclusion.message}; what its labels and its NodeTopology say is as old. "
                "Look at its Pod: kubectl get pods --all-namespaces --selector app.kubernetes.io/component=agent "
                f"--field-selector spec.nodeName={view.name}"
            )
            name = _event_name(view.name, view.exclusion.message)
            found[view.name] = Notice(name, ExclusionReason.AGENT_STALE, EventAction.EXCLUDE, words, warning=True)
    return dict(sorted(found.items()))


def lemon_news(cluster: Cluster, now: datetime) -> tuple[LemonNews, ...]:
    """The evidence to store with NodeTopologies now, by node."""
    found = []
    for record in sorted(cluster.records(), key=lambda each: each.report.name):
        report = record.report
        ends, lemon = record_of(record, cluster, now)
        if (ends, lemon) != (report.run_ends, report.lemon):
            is_new = lemon is not None and report.lemon is None
            found.append(
                LemonNews(report.name, ends, lemon, _lemon_notice(report.name, lemon) if is_new and lemon else None)
            )
    return tuple(found)


def _lemon_notice(node: str, lemon: LemonStatus) -> Notice:
    name = _event_name(node, lemon.since)
    return Notice(name, EventReason.LEMON, EventAction.PLACE, lemon.message[:NOTE_MAX_LENGTH], warning=True)


def _event_name(node: str, state: str) -> str:
    """The name of the Event about this state of a node."""
    return f"{node[:_NODE_NAME].rstrip('.-')}.{sha256(state.encode()).hexdigest()[:16]}"


def topology_status(
    topology: ClusterTopology, cluster: Cluster, now: datetime, glance: ClusterSummary | None = None
) -> ClusterTopologyStatus:
    """The status of one ClusterTopology."""
    nodes = [view for view in cluster.nodes.values() if view.machine is not None]
    if _counts(topology):
        told, levels = [_ready(topology, cluster, nodes), _agents(nodes), _offered(nodes)], levels_of(cluster)
    else:
        words = (
            f"only the ClusterTopology called {DEFAULT_CLUSTER_TOPOLOGY} counts; create it under that name, and delete "
            "this one"
        )
        told, levels = [_observed(Mistake(TopologyReason.NOT_USED, words))], []
    types = {each.type for each in told}
    stored = [each for each in topology.status.conditions if each.type in types]
    conditions = observed(stored, told, generation=topology.metadata.generation, now=now)
    is_told = glance is not None and _counts(topology)
    told_now = news_of(glance, topology.status.summary) if is_told and glance is not None else None
    return ClusterTopologyStatus(conditions=conditions, levels=levels, summary=told_now)


def _counts(topology: ClusterTopology) -> bool:
    return topology.metadata.name == DEFAULT_CLUSTER_TOPOLOGY


def levels_of(cluster: Cluster) -> list[LevelStatus]:
    """What is counted of each level over nodes with a machine."""
    counted = [(view.domains, *_gpus(view)) for view in cluster.nodes.values() if view.machine is not None]
    levels = []
    for at, name in enumerate(cluster.levels):
        inside = [each for each in counted if each[0][at] is not None]
        levels.append(
            LevelStatus(
                name=name,
                domains=len({domains[at] for domains, _, _ in inside}),
                gpus=sum([gpus for _, gpus, _ in inside]),
                free_gpus=sum([free for _, _, free in inside]),
            )
        )
    return levels


def _gpus(view: NodeView) -> tuple[int, int]:
    """A node's GPUs, and its free ones, as numbers."""
    there = len(view.machine.gpus) if view.machine is not None else 0
    return there, view.open_gpus


def _agents(nodes: Sequence[NodeView]) -> Observation:
    """Whether all nodes' agents are alive: only an agent writes its NodeTopology, and a dead one cannot report
    itself."""
    silent = sorted(view.name for view in nodes if is_silent(view))
    if not silent:
        return Observation(TopologyConditionType.AGENTS_REPORT, True, TopologyReason.ALL_REPORT)
    words = (
        f"{len(silent)} of {count(len(nodes), 'agent')} {'is' if len(silent) == 1 else 'are'} silent, and no job is "
        f"placed on {names(silent)}"
    )
    return Observation(TopologyConditionType.AGENTS_REPORT, False, TopologyReason.AGENTS_SILENT, words)


def _offered(nodes: Sequence[NodeView]) -> Observation:
    """Whether Pods can be given GPUs of every node, by a device plugin or by DRA."""
    without = sorted(view.name for view in nodes if view.exclusion is None and view.is_unoffered)
    if not without:
        return Observation(TopologyConditionType.GPUS_OFFERED, True, TopologyReason.ALL_OFFERED)
    verb = "gives" if len(without) == 1 else "give"
    words = (
        f"{len(without)} of {count(len(nodes), 'node')} with GPUs {verb} Pods none: neither a device plugin nor a "
        f"ResourceSlice offers any of {names(without)}; {SET_UP}, or see why it does not: "
        "kubectl get clusterpolicies.nvidia.com, kubectl get gpuclusters.nvidia.com"
    )
    return Observation(TopologyConditionType.GPUS_OFFERED, False, TopologyReason.NOT_OFFERED, words)


def is_silent(view: NodeView) -> bool:
    """Whether a node is excluded because its agent has been silent for too long."""
    return view.exclusion is not None and view.exclusion.reason is ExclusionReason.AGENT_STALE


def _ready(topology: ClusterTopology, cluster: Cluster, nodes: Sequence[NodeView]) -> Observation:
    values = {level.name: _values(level, nodes) for level in topology.spec.levels}
    mistakes = list(_mistakes(topology, cluster, nodes, values)) if nodes else []  # without any it is unknown
    if mistakes:
        return _observed(*mistakes)
    words = [f"this cluster has {listed(cluster.levels, 'and')}", *_without(topology.spec.levels, nodes, values)]
    return Observation(TopologyConditionType.READY, True, TopologyReason.IN_USE, "; ".join(words))


def _observed(*mistakes: Mistake) -> Observation:
    """The observation, under the first one's reason."""
    words = "; ".join(each.words for each in mistakes)
    return Observation(TopologyConditionType.READY, False, mistakes[0].reason, words)


def _mistakes(
    topology: ClusterTopology, cluster: Cluster, nodes: Sequence[NodeView], values: Mapping[str, Mapping[str, str]]
) -> Iterator[Mistake]:
    levels, fabric = topology.spec.levels, topology.spec.fabric
    yield from _unknown_labels(levels, values, nodes)
    borne = [level for level in levels if values[level.name]]
    for outer, inner in pairwise(borne):
        yield from _reversed(outer, inner, values)
    known = {*cluster.levels, *RESERVED_LEVELS}
    if unknown := sorted(fabric.level_bandwidth_gb_s.keys() - known):
        words = (
            f"fabric.levelBandwidthGBps names {listed(unknown, 'and')}; this cluster has "
            f"{listed(cluster.levels, 'and')}: name one of these"
        )
        yield Mistake(TopologyReason.UNKNOWN_LEVEL, words)
    resources = [each.resource for each in fabric.sriov_networks]
    if unoffered := [each for each in resources if not any((view.allocatable or {}).get(each) for view in nodes)]:
        words = (
            f"no node with GPUs offers {listed(unoffered, 'or')} of fabric.sriovNetworks; correct the name, or have "
            "the SR-IOV device plugin offer it"
        )
        yield Mistake(TopologyReason.UNKNOWN_RESOURCE, words)
    classes = fabric.traffic_classes.items()
    if empty := sorted(name for name, each in classes if each.dscp is None and each.service_level is None):
        words = (
            f"fabric.trafficClasses has neither dscp nor serviceLevel for {listed(empty, 'and')}, and marks nothing; "
            "set one of them"
        )
        yield Mistake(TopologyReason.EMPTY_TRAFFIC_CLASS, words)


def _values(level: Level, nodes: Sequence[NodeView]) -> dict[str, str]:
    """Node -> its value of the level's label; those without one are left out."""
    return {view.name: value for view in nodes if (value := view.labels.get(level.node_label))}


def _unknown_labels(
    levels: Sequence[Level], values: Mapping[str, Mapping[str, str]], nodes: Sequence[NodeView]
) -> Iterator[Mistake]:
    missing = [level for level in levels if not values[level.name]]
    if not missing:
        return
    keys = sorted({key for view in nodes for key in view.labels})[:_KEYS_COMPARED]
    for level in missing:
        near = get_close_matches(level.node_label, keys, n=1, cutoff=0.8)
        meant = f" (they have {near[0]})" if near else ""
        words = (
            f"no node with GPUs has label {level.node_label} of level {level.name}{meant}, so that each is a domain of "
            "its own there and at every level inside it; correct levels, or label the nodes"
        )
        yield Mistake(TopologyReason.UNKNOWN_LABEL, words)


def _reversed(outer: Level, inner: Level, values: Mapping[str, Mapping[str, str]]) -> Iterator[Mistake]:
    """Whether the inner level contains the outer one."""
    inside = values[inner.name]
    pairs = {(value, inside[node]) for node, value in values[outer.name].items() if node in inside}
    outers, inners = {value for value, _ in pairs}, {value for _, value in pairs}
    if not pairs or len(inners) >= len(outers) or len(pairs) > _PAIRS_PER_OUTER * len(outers):
        return
    around = {domain: sorted(value for value, other in pairs if other == domain) for domain in inners}
    domain, spanned = max(around.items(), key=lambda entry: (len(entry[1]), entry[0]))
    words = (
        f"level {inner.name} is listed inside {outer.name}, and {inner.name} {domain} spans {len(spanned)} domains of "
        f"{outer.name} ({names(spanned)}): levels go from the outermost to the innermost, so list {inner.name} before "
        f"{outer.name}"
    )
    yield Mistake(TopologyReason.LEVELS_REVERSED, words)


def _without(
    levels: Sequence[Level], nodes: Sequence[NodeView], values: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """Nodes without a label that others have: intended, or a slip."""
    for level in levels:
        borne = values[level.name]
        if len(borne) < len(nodes):
            without = sorted(view.name for view in nodes if view.name not in borne)
            verb = "lacks" if len(without) == 1 else "lack"
            whose = f"{verb} label {level.node_label} of level {level.name}, and {'is' if verb == 'lacks' else 'are'}"
            yield f"{names(without)} {whose} in no domain of it"
