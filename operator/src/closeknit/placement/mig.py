"""A job of one rank on a MIG device: a free one of its profile, where the fewest others are left.

The node with the fewest free devices of the profile comes first, then the GPU, so that whole GPUs' worth stays; of
equals the first by name, index and uuid. A rank alone exchanges nothing: levels, NVLink and NICs do not matter.
"""

from collections import Counter
from collections.abc import Sequence

from closeknit.api.reasons import ExclusionReason, PendingReason
from closeknit.api.trainingjob import BindingPolicy
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node.node import HolderKind, MigView, NodeView
from closeknit.cluster.objects.taints_and_faults import Fault, FaultKind
from closeknit.placement.candidates.excluded import AVOIDED, NAMED, SPARE_FOR, ranked, unhealthy, unselected
from closeknit.placement.candidates.node_filter import is_kept, selected, untolerated
from closeknit.placement.candidates.resource_fit import fits, lacking, shortage
from closeknit.placement.gang.prediction import ONE_GPU
from closeknit.placement.values.placement import NoFit, Placement, Share, TransportChoice
from closeknit.placement.values.request import Request
from closeknit.placement.values.sentences import count, listed

_GIB = 1 << 30


def place_mig(cluster: Cluster, request: Request) -> Placement | NoFit:
    """The device, or why there is none. Equal clusters and requests give equal answers."""
    best = _best(cluster, request)
    if best is None:
        return _refusal(cluster, request)
    view, there = best
    of_gpu = Counter(device.gpu for device in there)
    device = min(there, key=lambda each: (of_gpu[each.gpu], each.gpu, each.uuid))
    share = Share(
        node=view.name,
        gpus=(device.gpu,),
        uuids=(device.uuid,),
        first_rank=0,
        binding=device.binding,
        nics=(),
        topology_generation=view.topology_generation,
        mig_device=device.uuid,
    )
    return Placement(
        shares=(share,),
        levels=tuple((level, 1) for level in cluster.levels[:-1]),
        transport=TransportChoice.NONE,
        predicted_bus_bandwidth_gb_s=None,
        ideal_bus_bandwidth_gb_s=None,
        limited_by=ONE_GPU,
    )


def can_place_mig(cluster: Cluster, request: Request) -> bool:
    """Whether `place_mig` gives a Placement."""
    return _best(cluster, request) is not None


def _best(cluster: Cluster, request: Request) -> tuple[NodeView, Sequence[MigView]] | None:
    """The node with the fewest free devices for the job, with these. Nodes are judged in this order, the first that
    the job may use ends it."""
    is_plain = not request.products and request.min_memory_bytes is None and request.binding is BindingPolicy.AUTO
    found: list[tuple[int, str, Sequence[MigView]]] = []
    for name, node in cluster.forest.mig.items():
        there: Sequence[MigView] = node.free.get(request.mig or "", ())
        if there and not is_plain:
            view = cluster.nodes[name]
            there = [device for device in there if _is_wanted(view, device, request) and _is_bound(device, request)]
        if there:
            found.append((len(there), name, there))
    for _, name, there in sorted(found, key=lambda each: each[:2]):
        view = cluster.nodes[name]
        if _out(view, request) is None and fits(view.spare, request.needs):
            return view, there
    return None


def _is_wanted(view: NodeView, device: MigView, request: Request) -> bool:
    """Whether a device is of the job's profile, product and memory."""
    if device.profile != request.mig:
        return False
    least = request.min_memory_bytes
    if least is not None and (device.memory_bytes is None or device.memory_bytes < least):
        return False
    return not request.products or _product(view, device) in request.products


def _is_bound(device: MigView, request: Request) -> bool:
    return request.binding in (BindingPolicy.AUTO, device.binding)


def _product(view: NodeView, device: MigView) -> str | None:
    gpus = view.machine.gpus if view.machine is not None else ()
    return next((gpu.product for gpu in gpus if gpu.index == device.gpu), None)


def _out(view: NodeView, request: Request) -> str | None:
    """Why the job may not use a node; None where it may."""
    if view.exclusion is not None:
        return f"{view.exclusion.reason}: {view.exclusion.message}"
    if not selected(view.name, view.labels, request):
        return unselected(view, request)
    if taints := untolerated(view.taints, request):
        return f"{ExclusionReason.TAINTED}: {taints[0].key}"
    if is_kept(view.spare_for, request):
        return f"{SPARE_FOR} {view.spare_for}"
    return AVOIDED if view.name in request.avoided else None


def _refusal(cluster: Cluster, request: Request) -> NoFit:
    """The first that holds: nothing is of that kind, none is free, none has room beside it."""
    views = [cluster.nodes[name] for name in sorted(cluster.forest.mig)]
    asked = f"needs a MIG device {request.mig}{_described(request)}"
    found = [(view, device) for view in views for device in view.mig if _is_wanted(view, device, request)]
    if not found:
        there = Counter((device.profile, _product(view, device)) for view in views for device in view.mig)
        return NoFit(PendingReason.NO_MATCHING_GPU, f"{asked}; {_offered(there)}")
    why: Counter[str] = Counter()
    faults = Counter[Fault]()
    nodes: dict[str, str] = {}
    cramped: dict[str, str] = {}
    holders = {kind: set[object]() for kind in HolderKind}
    held: Counter[HolderKind] = Counter()
    for view, device in found:
        if out := _out(view, request):
            nodes[view.name] = out
        elif device.fault is not None:
            faults[device.fault] += 1
        elif device.holder is not None:
            held[device.holder.kind] += 1
            holders[device.holder.kind].add(device.holder)
        elif not _is_bound(device, request):
            why[f"not for binding {request.binding}"] += 1
        else:
            short = lacking(view.spare, request.needs)
            cramped[view.name] = listed([shortage(resource) for resource, _ in short], "and")
    why.update({str(fault): number for fault, number in faults.items() if fault.kind is not FaultKind.UNHEALTHY})
    why += unhealthy(faults)
    why.update({f"held by {count(len(holders[kind]), kind)}": number for kind, number in held.items()})
    reason = PendingReason.INSUFFICIENT_RESOURCES if cramped else PendingReason.INSUFFICIENT_GPUS
    free = sum(device.is_free and view.name in cramped for view, device in found)
    left = f"; {why.total()} excluded: {', '.join(ranked(why))}" if why else ""
    are = "is" if free == 1 else "are"
    return NoFit(reason, f"{asked}; {free} of {len(found)} {are} free{left}{_named({**nodes, **cramped})}")


def _described(request: Request) -> str:
    words = f" of product {listed(request.products, 'or')}" if request.products else ""
    least = request.min_memory_bytes
    return words if least is None else f"{words} with at least {least / _GIB:g} GiB of memory"


def _offered(there: Counter[tuple[str, str | None]]) -> str:
    if not there:
        return "no node of this cluster has MIG devices; leave gpu.mig out for a whole GPU"
    kinds = [
        f"{number} {profile} ({product or 'unknown product'})"
        for (profile, product), number in sorted(there.items(), key=lambda each: (-each[1], str(each[0])))
    ]
    return f"this cluster has {listed(kinds, 'and')}; ask for one of these, or leave gpu.mig out for a whole GPU"


def _named(nodes: dict[str, str]) -> str:
    if not nodes:
        return ""
    words = [f"{name} ({why})" for name, why in sorted(nodes.items())[:NAMED]]
    more = f" and {len(nodes) - NAMED} more" if len(nodes) > NAMED else ""
    return f"; {count(len(nodes), 'node')} excluded: {', '.join(words)}{more}"
