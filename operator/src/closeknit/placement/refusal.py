"""Why a gang does not fit: the first demand, from the most basic on, that cannot be met together with those before it.

Every number in a message comes from a search or a count of this very cluster.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from closeknit.api.names import HOST_LEVEL, NVLINK_DOMAIN_LEVEL, PendingReason
from closeknit.api.trainingjob import NvlinkPolicy, RdmaPolicy
from closeknit.cluster.cluster import Cluster
from closeknit.machine.islands import islands
from closeknit.placement.bandwidth import RDMA_TRANSPORTS
from closeknit.placement.excluded import bindable, excluded, left_to_plugins
from closeknit.placement.placement import NoFit
from closeknit.placement.pool import Plan
from closeknit.placement.request import Request
from closeknit.placement.search import best_plan
from closeknit.placement.sets import positions_of
from closeknit.placement.survey import Candidate, matching
from closeknit.placement.words import count, listed

_GIB = 1 << 30


def unknown_level(cluster: Cluster, request: Request) -> NoFit | None:
    """The refusal of a level that this cluster does not have."""
    for level in (request.required_level, request.preferred_level):
        if level is not None and level not in cluster.levels:
            return NoFit(
                PendingReason.UNKNOWN_LEVEL,
                f"needs level {level}; this cluster has {listed(cluster.levels, 'and')}; "
                "name one of these, or describe the level in ClusterTopology default",
            )
    return None


def refusal(cluster: Cluster, request: Request, candidates: Sequence[Candidate]) -> NoFit:
    """Why no plan exists for a request over these candidates."""

    def plan(wanted: Request) -> Plan | None:
        return best_plan(cluster.levels, cluster.fabric, candidates, wanted)

    if (request.products or request.min_memory_bytes is not None) and not _any_match(cluster, request):
        return NoFit(PendingReason.NO_MATCHING_GPU, _no_match(cluster, request))
    wanted = replace(
        request,
        nvlink=NvlinkPolicy.IGNORED if request.nvlink is NvlinkPolicy.REQUIRED else request.nvlink,
        required_level=None,
        rdma=RdmaPolicy.DISABLED if request.rdma is RdmaPolicy.DISABLED else RdmaPolicy.PREFERRED,
        min_bus_bandwidth_gb_s=None,
    )
    if plan(wanted) is None:
        return NoFit(PendingReason.INSUFFICIENT_GPUS, _insufficient(cluster, request, candidates))
    wanted = replace(wanted, nvlink=request.nvlink)
    loose = plan(wanted)
    if loose is None:
        return NoFit(PendingReason.NO_NVLINK_ISLAND, _no_island(cluster, request, candidates))
    wanted = replace(wanted, required_level=request.required_level)
    inside = plan(wanted)
    if inside is None:
        return NoFit(PendingReason.NO_DOMAIN, _no_domain(cluster, request, candidates, loose))
    wanted = replace(wanted, rdma=request.rdma)
    reached = plan(wanted)
    if reached is None:
        return NoFit(PendingReason.RDMA_UNAVAILABLE, _no_rdma(request, candidates))
    best = reached
    while best.prediction.gb_s is not None:  # each time strictly faster
        faster = plan(replace(wanted, min_bus_bandwidth_gb_s=best.prediction.gb_s + 1e-6))
        if faster is None:
            break
        best = faster
    return NoFit(PendingReason.BANDWIDTH_BELOW_MINIMUM, _too_slow(request, best))


def _any_match(cluster: Cluster, request: Request) -> bool:
    return any(view.machine and matching(view.machine, request) for view in cluster.nodes.values())


def _no_match(cluster: Cluster, request: Request) -> str:
    asked = []
    if request.products:
        asked.append(f"of product {listed(request.products, 'or')}")
    if request.min_memory_bytes is not None:
        asked.append(f"with at least {request.min_memory_bytes / _GIB:g} GiB of memory")
    found = Counter(
        (gpu.product or "unknown product", gpu.memory_bytes)
        for view in cluster.nodes.values()
        if view.machine
        for gpu in view.machine.gpus
    )
    there = [
        f"{number} {product}" + (f" ({memory / _GIB:.0f} GiB)" if memory else "")
        for (product, memory), number in sorted(found.items(), key=lambda entry: (-entry[1], str(entry[0])))
    ]
    return f"needs {_gpus(request)} {' '.join(asked)}; this cluster has {listed(there, 'and') or 'no GPUs'}"


def _insufficient(cluster: Cluster, request: Request, candidates: Sequence[Candidate]) -> str:
    able = [(entry, bindable(entry, request)) for entry in candidates]
    free = sum(gpus for _, gpus in able)
    nodes = sum(1 for _, gpus in able if gpus)
    tail = excluded(cluster, request, candidates)
    each = request.gpus_per_node
    if each is None and free < request.gpus:
        where = f" on {count(nodes, 'node')}" if nodes else ""
        return f"needs {_gpus(request)}; {free} {'is' if free == 1 else 'are'} free{where}{tail}"
    if each is not None:
        wanted = request.gpus // each
        fitting = [entry.view.name for entry, gpus in able if gpus >= each]
        if len(fitting) < wanted:
            named = f" ({listed(fitting, 'and')})" if 0 < len(fitting) <= 3 else ""
            verb = "has" if len(fitting) == 1 else "have"
            return (
                f"needs {count(wanted, 'node')} with {each} free GPUs each; {len(fitting)} {verb} so many{named}{tail}"
            )
    found = f"needs {_gpus(request)}; {free} are free on {count(nodes, 'node')}"
    if picked := left_to_plugins(request, candidates):
        return (
            f"{found}, but on {count(picked, 'node')} a device plugin would pick which, and could pick badly"
            f" (gpu.binding: BestEffort takes what it picks){tail}"
        )
    if request.group > 1 and request.nvlink is not NvlinkPolicy.IGNORED:
        room = sum(gpus // request.group for _, gpus in able)
        if room * request.group < request.gpus:
            return (
                f"needs {count(request.gpus // request.group, 'group')} of {request.group} GPUs, each on one node; "
                f"free nodes have room for {room}{tail}"
            )
    if cluster.fabric.rail_isolated:
        return f"{found}, but not the same indexes on every node (fabric.railIsolated){tail}"
    return f"{found}, but not in shares that can be bound there{tail}"


def _no_island(cluster: Cluster, request: Request, candidates: Sequence[Candidate]) -> str:
    sizes = sorted(
        (-len(island), entry.view.name)
        for entry in candidates
        for island in islands(entry.machine, positions_of(entry.profile.pool))
    )
    largest, node = (-sizes[0][0], sizes[0][1]) if sizes else (0, "")
    machines = [view.machine for view in cluster.nodes.values() if view.machine]
    widest = max((len(machine.gpus) for machine in machines), default=0)
    group, groups = request.group, request.gpus // request.group
    room = sum(-size // group for size, _ in sizes)
    if group > 1 and groups > 1:
        asked = f"needs {groups} groups of {group} GPUs, each in one NVLink island"
    elif group > 1 or request.gpus <= widest:
        asked = f"needs {_gpus(request)} in one NVLink island"
    else:
        asked = f"needs {_gpus(request)}, those of each node in one NVLink island"
    if group > 1 and largest >= group and room < groups:
        found = f"free islands have room for {room}, the largest has {largest} ({node})"
    elif largest >= (group if group > 1 else request.gpus):
        found = f"largest free island has {largest} ({node}), but no shares that can be bound keep to islands"
    else:
        found = f"largest free island has {largest} ({node})"
    whole = [island for machine in machines for island in islands(machine, range(len(machine.gpus)))]
    most = max(map(len, whole), default=0)
    if group > most and NVLINK_DOMAIN_LEVEL not in cluster.levels:
        found += f", and no machine here has more than {most} in one: lower tensor x context, or set nvlink: Preferred"
    return f"{asked}; {found}{excluded(cluster, request, candidates)}"


def _no_domain(cluster: Cluster, request: Request, candidates: Sequence[Candidate], loose: Plan) -> str:
    level = request.required_level or HOST_LEVEL
    at = cluster.levels.index(level)
    free: Counter[str] = Counter()
    nodes: Counter[str] = Counter()
    for entry in candidates:
        gpus = bindable(entry, request)
        if gpus:
            free[entry.domains[at]] += gpus
            nodes[entry.domains[at]] += 1
    domain, most = min(free.items(), key=lambda entry: (-entry[1], entry[0]))
    enough = ", but not in shares that meet the other demands" if most >= request.gpus else ""
    return (
        f"needs {_gpus(request)} in one {level}; {domain} has the most free, {most} on {count(nodes[domain], 'node')}"
        f"{enough}; it would fit over {loose.counts[at]} domains of level {level}"
        f"{excluded(cluster, request, candidates)}"
    )


def _no_rdma(request: Request, candidates: Sequence[Candidate]) -> str:
    able = [(entry, gpus) for entry in candidates if (gpus := bindable(entry, request))]
    offers = []
    for transport in RDMA_TRANSPORTS:
        free = [gpus for entry, gpus in able if transport in entry.profile.transports]
        if free:
            offers.append(f"{len(free)} {'offers' if len(free) == 1 else 'offer'} {transport} ({sum(free)} GPUs)")
    return (
        f"needs {_gpus(request)} with RDMA between nodes; of {count(len(able), 'node')} with free GPUs "
        f"{listed(offers, 'and') or 'none offers it'}; it would fit over sockets (network.rdma: Preferred)"
    )


def _too_slow(request: Request, best: Plan) -> str:
    asked = f"needs {request.min_bus_bandwidth_gb_s:g} GB/s"
    if best.prediction.gb_s is None:
        return f"{asked}; what the gang would reach is unknown: {best.prediction.limited_by}"
    return f"{asked}; the best placement now reaches {best.prediction.gb_s:g} GB/s: {best.prediction.limited_by}"


def _gpus(request: Request) -> str:
    return count(request.gpus, "GPU")
