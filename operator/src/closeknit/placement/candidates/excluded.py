"""Counts of what a search left out: GPUs that are held, unhealthy or unbindable, and whole nodes."""

from collections import Counter
from collections.abc import Collection, Mapping

from closeknit.api.reasons import ExclusionReason
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node.node import HolderKind, NodeView
from closeknit.cluster.objects.taints_and_faults import Fault, FaultKind
from closeknit.placement.candidates.binding import UNTOLD, bindable, unbound
from closeknit.placement.candidates.node_filter import in_reach, is_chosen, is_kept, selected, untolerated
from closeknit.placement.candidates.offer import Offer
from closeknit.placement.candidates.resource_fit import shortage
from closeknit.placement.candidates.usable_areas import Areas
from closeknit.placement.values.request import Request
from closeknit.placement.values.sentences import count, listed

NAMED = 3  # so many nodes are named; more are counted
AVOIDED = "avoided after it refused a Pod of this job"
OUT_OF_REACH = "out of reach of its volumes"
SPARE_FOR = "spare for queue"


def excluded(cluster: Cluster, request: Request, ground: Areas) -> str:
    """`; 9 excluded: 1 unhealthy (XID79), 8 held by 2 jobs; 1 node excluded: gpu-09 (NotReady: …)`, or nothing.

    Nodes are named, because the reader may have to act on them; holders are only counted, so
    that all who ask alike share the answer.
    """
    gpus = _gpus(cluster, request, ground)
    nodes = _nodes(cluster, request, ground)
    words = ""
    if gpus:
        words += f"; {sum(gpus.values())} excluded: {', '.join(ranked(gpus))}"
    if nodes:
        words += f"; {count(nodes.total(), 'node')} excluded: "
        named = _named(cluster, request, ground) if nodes.total() <= NAMED else None
        words += ", ".join(f"{name} ({why})" for name, why in sorted(named.items())) if named else ""
        words += "" if named else ", ".join(ranked(nodes))
    return words


def ranked(counts: Counter[str]) -> list[str]:
    """The most frequent first; of equals broken before held."""
    order = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0].startswith("held by"), entry[0]))
    return [f"{number} {why}" for why, number in order]


def unhealthy(faults: Mapping[Fault, int]) -> Counter[str]:
    """The number of unhealthy ones, with their most frequent reasons: `unhealthy (XID79)`, `unhealthy (2 XID79, 1
    FabricNotReady)`; empty without any."""
    found = Counter({each.detail: number for each, number in faults.items() if each.kind is FaultKind.UNHEALTHY})
    told = sorted(
        ((number, detail) for detail, number in found.items() if detail), key=lambda each: (-each[0], each[1])
    )
    words = [f"{number} {detail}" if len(found) > 1 else detail for number, detail in told[:NAMED]]
    if words and (more := found.total() - sum(number for number, _ in told[:NAMED])):
        words.append(f"{more} otherwise")
    return +Counter({f"{FaultKind.UNHEALTHY} ({', '.join(words)})" if words else FaultKind.UNHEALTHY: found.total()})


def _gpus(cluster: Cluster, request: Request, ground: Areas) -> Counter[str]:
    """GPUs on usable nodes that the job cannot have, by reason."""
    why: Counter[str] = Counter()
    for group, number, nodes in ground.groups():
        offer = ground.offers[number]
        for _, fault in group.faults:
            if fault != FaultKind.UNHEALTHY:
                why[fault] += nodes
        if other := (group.free & ~offer.terms.pool).bit_count():
            why["of another product or size"] += other * nodes
        if free := offer.gpus - bindable(offer, request.binding):
            why[unbound(group, request.binding, allow_shared=request.allow_shared)] += free * nodes
    faults = Counter[Fault]()
    for group, _, names in ground.members():
        if any(fault == FaultKind.UNHEALTHY for _, fault in group.faults):
            for name in names:
                faults.update(cluster.nodes[name].unusable.values())
    why += unhealthy(faults)
    if untold := why.pop(UNTOLD, 0):
        those = {offer for offer in ground.offers if bindable(offer, request.binding) < offer.gpus}
        why[f"{UNTOLD} ({remedy(cluster, ground, those)})"] = untold
    holders = ground.holders(cluster.nodes)
    for kind in HolderKind:
        if gpus := [number for holder, number in holders.items() if holder.kind is kind]:
            why[f"held by {count(len(gpus), kind)}"] = sum(gpus)
    return why


def remedy(cluster: Cluster, ground: Areas, offers: Collection[Offer]) -> str:
    """Advice where GPUs of these offers are free by count and not given because it is unknown which they are."""
    names = sorted(
        name
        for group, number, run in ground.members()
        if group.plugin is not None and group.plugin.unnamed
        if ground.offers[number] in offers
        for name in run
        if not cluster.nodes[name].asks_kubelet
    )
    if not names:
        return "their agents tell it soon"
    shown = [*names[:NAMED], *([count(len(names) - NAMED, "other node")] if len(names) > NAMED else [])]
    agents, tell = ("the agent", "tells") if len(names) == 1 else ("the agents", "tell")
    return f"set agent.podResources in the chart's values, and {agents} of {listed(shown, 'and')} {tell}"


def _nodes(cluster: Cluster, request: Request, ground: Areas) -> Counter[str]:
    """Whole nodes that the job cannot have, by reason."""
    why: Counter[str] = Counter()
    spare: Counter[str] = Counter()
    for group, nodes in cluster.forest.now.counts.items():
        left = ground.domain.counts.get(group, 0)
        if group.excluded is not None:
            why[group.excluded] += nodes
            continue
        why[_unchosen(request)] += nodes - left
        if untolerated(group.taints, request):
            why[ExclusionReason.TAINTED] += left
        elif is_kept(group.spare_for, request):
            spare[group.spare_for] += left
    spare = +spare
    if len(spare) > NAMED:
        why[f"spare for {len(spare)} queues"] = spare.total()
    else:
        why.update({f"{SPARE_FOR} {queue}": nodes for queue, nodes in spare.items()})
    for _, _, names in ground.cramped():
        why.update(shortage(short[0][0]) for _, short in names)
    avoided = sum(_is_avoided(cluster, request, name) for name in request.avoided)
    far = sum(_is_far(view, request) for view in cluster.nodes.values()) if request.volumes else 0
    why[_unchosen(request)] -= avoided + far
    why[AVOIDED] += avoided
    why[OUT_OF_REACH] += far
    return +why


def unselected(view: NodeView, request: Request) -> str:
    """Why the job does not select a node, in the words of its template."""
    return OUT_OF_REACH if is_chosen(view.name, view.labels, request) else _unchosen(request)


def _is_far(view: NodeView, request: Request) -> bool:
    """Whether only its volumes keep the job from a node."""
    return (
        view.exclusion is None
        and is_chosen(view.name, view.labels, request)
        and not in_reach(view.name, view.labels, request)
    )


def _unchosen(request: Request) -> str:
    if request.affinity is None:
        return "not selected by nodeSelector"
    return f"not selected by {'nodeSelector or ' if request.node_selector else ''}node affinity"


def _is_avoided(cluster: Cluster, request: Request, name: str) -> bool:
    """Whether only the job's own experience keeps it from a node."""
    view = cluster.nodes.get(name)
    return (
        name in request.avoided and view is not None and view.exclusion is None and selected(name, view.labels, request)
    )


def _named(cluster: Cluster, request: Request, ground: Areas) -> dict[str, str]:
    """The same by node."""
    is_narrowed = request.selects or bool(request.avoided)
    left = {name for _, names in ground.domain.members() for name in names} if is_narrowed else None
    found = {
        name: listed([shortage(resource) for resource, _ in short], "and")
        for _, _, names in ground.cramped()
        for name, short in names
    }
    for group, names in cluster.forest.now.members():
        taints = untolerated(group.taints, request)
        is_spare = is_kept(group.spare_for, request)
        if group.excluded is None and not taints and not is_spare and left is None:
            continue
        for name in names:
            exclusion = cluster.nodes[name].exclusion
            if exclusion is not None:
                found[name] = f"{exclusion.reason}: {exclusion.message}"
            elif _is_avoided(cluster, request, name):
                found[name] = AVOIDED
            elif left is not None and name not in left:
                found[name] = unselected(cluster.nodes[name], request)
            elif taints:
                found[name] = f"{ExclusionReason.TAINTED}: {taints[0].key}"
            elif is_spare:
                found[name] = f"{SPARE_FOR} {group.spare_for}"
    return found
