"""What a search had to leave out, counted: GPUs that are held, unhealthy or unbindable, and whole nodes."""

from collections import Counter
from collections.abc import Sequence

from closeknit.api.names import ExclusionReason
from closeknit.api.trainingjob import BindingPolicy
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node import Holder, HolderKind
from closeknit.placement.request import Request
from closeknit.placement.sets import Ask
from closeknit.placement.survey import Candidate, selected, untolerated
from closeknit.placement.words import count

NAMED = 3  # so many holders, or nodes, are named; more are counted


def bindable(candidate: Candidate, request: Request) -> int:
    """The most GPUs of a node that could be bound to one Pod of the job now."""
    profile = candidate.profile
    sizes = range(profile.pool.bit_count(), 0, -1)
    return next((size for size in sizes if profile.seat(Ask(size), request.binding)), 0)


def left_to_plugins(request: Request, candidates: Sequence[Candidate]) -> int:
    """How many nodes have GPUs enough for one Pod, but leave it to a device plugin which, and it could pick badly."""
    if request.binding is not BindingPolicy.AUTO:
        return 0
    size = request.gpus_per_node or request.gpus
    return sum(
        1
        for entry in candidates
        if not entry.profile.dra
        and entry.profile.part > 1
        and not entry.profile.seat(Ask(min(size, entry.profile.part)), request.binding)
    )


def excluded(cluster: Cluster, request: Request, candidates: Sequence[Candidate]) -> str:
    """`; 2 excluded: 1 unhealthy, 1 held by team-b/train-3; 1 node excluded: gpu-09 (NotReady)`, or nothing."""
    gpus = _gpus(request, candidates)
    nodes = _nodes(cluster, request)
    words = ""
    if gpus:
        words += f"; {sum(gpus.values())} excluded: {', '.join(_ranked(gpus))}"
    if nodes:
        words += f"; {count(len(nodes), 'node')} excluded: "
        if len(nodes) <= NAMED:
            words += ", ".join(f"{name} ({why})" for name, why in sorted(nodes.items()))
        else:
            words += ", ".join(_ranked(Counter(why.partition(":")[0] for why in nodes.values())))
    return words


def _ranked(counts: Counter[str]) -> list[str]:
    """The most frequent first; of equals what is broken before what is held."""
    order = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0].startswith("held by"), entry[0]))
    return [f"{number} {why}" for why, number in order]


def _gpus(request: Request, candidates: Sequence[Candidate]) -> Counter[str]:
    """GPUs of the candidate nodes that the job cannot have, by reason."""
    why: Counter[str] = Counter()
    holders: Counter[str] = Counter()
    for entry in candidates:
        view, profile = entry.view, entry.profile
        for gpu in entry.machine.gpus:
            if gpu.index in view.unusable:
                why[view.unusable[gpu.index].summary] += 1
            elif gpu.index in view.holders:
                holders[_name(view.holders[gpu.index])] += 1
        if other := (profile.free & ~profile.pool).bit_count():
            why["of another product or size"] += other
        if unbound := profile.pool.bit_count() - bindable(entry, request):
            why[_unbound(entry, request)] += unbound
    if len(holders) <= NAMED:
        why.update({f"held by {holder}": number for holder, number in holders.items()})
    else:
        why[f"held by {len(holders)} others"] += holders.total()
    return why


def _name(holder: Holder) -> str:
    """A holder as a refusal names it: a job is what most are."""
    return f"{holder.namespace}/{holder.name}" if holder.kind is HolderKind.JOB else str(holder)


def _unbound(candidate: Candidate, request: Request) -> str:
    """Why free GPUs of a node cannot be bound."""
    view, policy = candidate.view, request.binding
    if policy is BindingPolicy.DRA:
        return "free without DRA"
    if view.dra:
        return f"free for DRA, not for binding {policy}"
    if view.plugin is None:
        return "free that nothing offers"
    if view.plugin.shared:
        return "shared by a device plugin"
    if policy is BindingPolicy.WHOLE_NODE:
        return "free on nodes that are not whole"
    if not view.plugin.holders_known:
        return "free where nobody knows which GPUs other Pods hold"
    if view.plugin.free < candidate.profile.free.bit_count():
        return "free that the device plugin does not offer"
    return "free that a device plugin would pick from"


def _nodes(cluster: Cluster, request: Request) -> dict[str, str]:
    """Whole nodes that the job cannot have, with the reason."""
    found = {}
    for name in sorted(cluster.nodes):
        view = cluster.nodes[name]
        if view.exclusion is not None:
            found[name] = f"{view.exclusion.reason}: {view.exclusion.message}"
        elif not selected(view, request):
            found[name] = "not selected by nodeSelector"
        elif taints := untolerated(view, request):
            found[name] = f"{ExclusionReason.TAINTED}: {taints[0].key}"
    return found
