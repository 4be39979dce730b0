"""The message of each reason. Every number in it comes from a search or a count of this cluster."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from closeknit.api.names import HOST_LEVEL, MNNVL, NVLINK_DOMAIN_LEVEL
from closeknit.api.trainingjob import NvlinkPolicy
from closeknit.cluster.cluster import Cluster
from closeknit.machine.islands import islands
from closeknit.placement.allreduce.bandwidth import RDMA_TRANSPORTS
from closeknit.placement.allreduce.paths import nvlink_generation
from closeknit.placement.candidates.binding import bindable, is_left_to_plugin, is_untold
from closeknit.placement.candidates.excluded import excluded, remedy
from closeknit.placement.candidates.offer import matching
from closeknit.placement.candidates.usable_areas import Areas
from closeknit.placement.gang.cache import Tables
from closeknit.placement.gang.interconnect import Interconnect
from closeknit.placement.gang.layout import Layout
from closeknit.placement.gang.search import best_layout, fits
from closeknit.placement.refusals.ideal import could_place, ideal_gb_s
from closeknit.placement.values.request import Request
from closeknit.placement.values.sentences import count, listed

_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class RefusalCase:
    """A request that does not fit, with the search's results."""

    cluster: Cluster
    request: Request
    ground: Areas
    """For the request without the demands after this one."""
    tables: Tables
    best: Layout | None
    """The best layout without this demand and those after it; None for the first demand."""
    but_for: Callable[[], str]
    """The other demands that would have to go if it does not fit without this one alone; empty if it does."""

    def layout(self, wanted: Request) -> Layout | None:
        """The best layout of another request."""
        ground = self.tables.ground(self.cluster, wanted)
        return best_layout(Interconnect.of(self.cluster), ground, wanted, self.tables)


SET_UP = "have NVIDIA's GPU operator set them up, by a ClusterPolicy (device plugin) or a GPUCluster (DRA), not both"
UNMEASURED = "no node agent has measured a GPU here"


def no_match(cluster: Cluster, request: Request, ground: Areas) -> str:
    """The message: no GPU of the cluster has a product and size that the job takes."""
    asked = []
    if request.products:
        asked.append(f"of product {listed(request.products, 'or')}")
    if request.min_memory_bytes is not None:
        asked.append(f"with at least {request.min_memory_bytes / _GIB:g} GiB of memory")
    found: Counter[tuple[str, int | None]] = Counter()
    for group, nodes in cluster.forest.now.counts.items():
        if group.kind:
            for product, memory_bytes in zip(group.kind.products, group.kind.memory_bytes, strict=True):
                found[product or "unknown product", memory_bytes] += nodes
    there = [
        f"{number} {product}" + (f" ({memory / _GIB:.0f} GiB)" if memory else "")
        for (product, memory), number in sorted(found.items(), key=lambda entry: (-entry[1], str(entry[0])))
    ]
    fields = [
        *([f"name one of these in gpu.products{_near(request.products, found)}"] if request.products else []),
        *(["lower gpu.minMemory"] if request.min_memory_bytes is not None else []),
    ]
    wanted = f"needs {_gpus(request)} {' '.join(asked)}"
    if not there:
        return f"{wanted}; {UNMEASURED}{excluded(cluster, request, ground)}"
    return f"{wanted}; this cluster has {listed(there, 'and')}; {listed(fields, 'or')}"


def is_unoffered(cluster: Cluster, ground: Areas) -> bool:
    """Whether Pods get no GPU of any node that the job may use, nor would of one that is excluded."""
    usable = [group for group, _, _ in ground.groups()]
    left_out = [group for group in cluster.forest.now.counts if group.excluded is not None and group.kind]
    return bool(usable) and all(group.is_unoffered for group in (*usable, *left_out))


def unoffered(request: Request, ground: Areas) -> str:
    """The message: neither a device plugin nor DRA gives Pods any GPU."""
    there = [(len(group.kind.products), nodes) for group, _, nodes in ground.groups() if group.kind]
    gpus, nodes = sum(number * nodes for number, nodes in there), sum(nodes for _, nodes in there)
    return (
        f"needs {_gpus(request)}; there are {gpus} on {count(nodes, 'node')}, and neither a device plugin nor a "
        f"ResourceSlice offers Pods one of them; {SET_UP}"
    )


def _near(wanted: Iterable[str], found: Iterable[tuple[str, int | None]]) -> str:
    """` (for H200 probably NVIDIA-H200)` where all words of one name are in the other."""
    there = sorted({product for product, _ in found})
    told = []
    for name in sorted({*wanted} - {*there}):
        words = _words(name)
        near = [product for product in there if words and (words <= _words(product) or words >= _words(product))]
        told += [f"for {name} probably {listed(near, 'or')}"] if near else []
    return f" ({', '.join(told)})" if told else ""


def _words(product: str) -> frozenset[str]:
    """Of a product's name, but for the maker's: every product has that."""
    return frozenset(re.findall(r"[a-z0-9]+", product.lower())) - {"nvidia", "tesla"}


def insufficient(case: RefusalCase) -> str:
    """The message: the cluster has too few free, bindable GPUs."""
    request, ground = case.request, case.ground
    able = [
        (bindable(ground.offers[number], request.binding), number, nodes) for number, nodes in ground.counts.items()
    ]
    free = sum(gpus * nodes for gpus, _, nodes in able)
    nodes = sum(nodes for gpus, _, nodes in able if gpus)
    tail = excluded(case.cluster, request, ground)
    each = request.gpus_per_node
    if not any(group.kind and group.kind.products for group in case.cluster.forest.now.counts):
        return f"needs {_gpus(request)}; {UNMEASURED}{tail}"
    if each is None and free < request.gpus:
        where = f" on {count(nodes, 'node')}" if nodes else ""
        most = sum(gpus * nodes for gpus, nodes in _whole(case))
        never = f"; the cluster has {most} at all: ask for fewer" if 0 < most < request.gpus else ""
        return f"needs {_gpus(request)}; {free} {'is' if free == 1 else 'are'} free{where}{never}{tail}"
    if each is not None:
        wanted = request.gpus // each
        fitting = sum(nodes for gpus, _, nodes in able if gpus >= each)
        if fitting < wanted:
            those = {ground.offers[number] for gpus, number, _ in able if gpus >= each}
            names = sorted(name for _, offer, name in ground.nodes() if offer in those) if 0 < fitting <= 3 else []
            named = f" ({listed(names, 'and')})" if names else ""
            verb = "has" if fitting == 1 else "have"
            most = sum(nodes for gpus, nodes in _whole(case) if gpus >= each)
            fewer = "ask for fewer" if most else "lower topology.gpusPerNode"
            never = f"; {most} {'has' if most == 1 else 'have'} so many at all: {fewer}" if most < wanted else ""
            found = f"{fitting} {verb} so many{named}{never}"
            return f"needs {count(wanted, 'node')} with {each} free GPUs each; {found}{tail}"
    found = f"needs {_gpus(request)}; {free} are free on {count(nodes, 'node')}"
    size = request.gpus_per_node or request.gpus
    picked = sum(
        nodes
        for number, nodes in ground.counts.items()
        if is_left_to_plugin(ground.offers[number], request.binding, size)
    )
    if picked:
        return (
            f"{found}, but on {count(picked, 'node')} a device plugin would pick which, and could pick badly"
            f" (gpu.binding: BestEffort takes what it picks){tail}"
        )
    untold = {
        offer for offer in map(ground.offers.__getitem__, ground.counts) if is_untold(offer, request.binding, size)
    }
    if untold:
        number = sum(nodes for each, nodes in ground.counts.items() if ground.offers[each] in untold)
        return (
            f"{found}, but on {count(number, 'node')} nobody knows which GPUs other Pods hold, and a device plugin "
            f"could give the wrong ones ({remedy(case.cluster, ground, untold)}){tail}"
        )
    if request.group > 1 and request.nvlink is not NvlinkPolicy.IGNORED:
        widest = max(len(ground.offers[number].terms.sets.facts.machine.gpus) for _, number, _ in able)
        if request.group > widest and (alike := _of_one_generation(case)) < request.gpus:
            return (
                f"{found}, but at most {alike} on machines of one NVLink generation, and no group mixes them "
                f"(topology.nvlink: Ignored does){tail}"
            )
        room = sum(gpus // request.group * nodes for gpus, _, nodes in able)
        if room * request.group < request.gpus:
            return (
                f"needs {count(request.gpus // request.group, 'group')} of {request.group} GPUs, each on one node; "
                f"free nodes have room for {room}{tail}"
            )
    if cut := _partitions(case):
        return f"{found}, {cut}{tail}"
    if case.cluster.fabric.rail_isolated:
        return f"{found}, but not the same indexes on every node (fabric.railIsolated){tail}"
    return f"{found}, but not in shares that can be bound there{tail}"


def _partitions(case: RefusalCase) -> str:
    """That claims get only partitions of some nodes, and of which sizes; empty without such nodes."""
    counts = case.ground.counts.items()
    cut = [(case.ground.offers[number].terms.sets.facts.machine.partitions, nodes) for number, nodes in counts]
    sizes = sorted({mask.bit_count() for masks, _ in cut if masks is not None for mask in masks})
    nodes = sum(nodes for masks, nodes in cut if masks is not None)
    if not nodes:
        return ""
    given = f"partitions of {listed(list(map(str, sizes)), 'or')} GPUs" if sizes else "no whole partition"
    return (
        f"but on {count(nodes, 'node')} a fabric manager has {given}, a claim can have nothing else, and the free ones "
        "do not add up: set topology.gpusPerNode to the size of one that is free"
    )


def _whole(case: RefusalCase) -> list[tuple[int, int]]:
    """(GPUs of a machine that the job takes if all are free, nodes that have so many), excluded ones too."""
    return [
        ((matching(group.kind, case.request) & ~group.kind.mig).bit_count(), nodes)
        for group, nodes in case.cluster.forest.now.counts.items()
        if group.kind
    ]


def _of_one_generation(case: RefusalCase) -> int:
    """The most free GPUs that can be bound on machines of one generation of NVLink."""
    found: Counter[int] = Counter()
    for number, nodes in case.ground.counts.items():
        offer = case.ground.offers[number]
        found[nvlink_generation(offer.terms.sets.facts.machine)] += bindable(offer, case.request.binding) * nodes
    return max(found.values(), default=0)


def no_island(case: RefusalCase) -> str:
    """The message: NVLink does not join what it must."""
    cluster, request, ground = case.cluster, case.request, case.ground
    sizes = {offer: offer.terms.islands() for offer in (ground.offers[number] for number in ground.counts)}
    largest = max((max(found, default=0) for found in sizes.values()), default=0)
    node = min((name for _, offer, name in ground.nodes() if largest and largest in sizes[offer]), default="")
    machines = [(group.kind.machine, nodes) for group, nodes in cluster.forest.now.counts.items() if group.kind]
    widest = max((len(machine.gpus) for machine, _ in machines), default=0)
    group, groups = request.group, request.gpus // request.group
    room = sum(
        nodes * sum(size // group for size in sizes[ground.offers[number]]) for number, nodes in ground.counts.items()
    )
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
    whole = [island for machine, _ in machines for island in islands(machine, range(len(machine.gpus)))]
    most = max(map(len, whole), default=0)
    if group > most:
        found += f", and no machine here has more than {most} in one{_apart(case)}"
        policy = NvlinkPolicy.PREFERRED if _of_one_generation(case) >= request.gpus else NvlinkPolicy.IGNORED
        found += f": lower tensor x context, or set nvlink: {policy}"
    return f"{asked}; {found}{excluded(cluster, request, ground)}"


def _apart(case: RefusalCase) -> str:
    """Why groups do not lie on several nodes of one NVLink domain."""
    cluster, request = case.cluster, case.request
    if NVLINK_DOMAIN_LEVEL not in cluster.levels:
        return ""
    if not request.leaves_channels:
        return f" (NVLink between nodes is left to the job's own {MNNVL})"
    if not cluster.imex_with:
        return " (NVLink between nodes needs NVIDIA's driver for ComputeDomains)"
    joints = Interconnect.of(cluster)
    if not joints.shared_trays and fits(joints._replace(shared_trays=True), case.ground, request, case.tables):
        return (
            f", and no {NVLINK_DOMAIN_LEVEL} has room for all on whole nodes, which NVLink between them takes "
            "(ClusterTopology fabric.sharedTrays: true would share them)"
        )
    return f", and no {NVLINK_DOMAIN_LEVEL} has room for all"


def no_domain(case: RefusalCase) -> str:
    """The message: no domain of the required level has room."""
    level = case.request.required_level or HOST_LEVEL
    return _over_domains(case, level, "needs", "it would fit", f" (topology.fabric.preferred: {level}){case.but_for()}")


def patient(case: RefusalCase) -> str:
    """The message: no domain of the preferred level has room, and the job waits for one; with what it would have
    instead, and lose."""
    request, loose = case.request, _known(case)
    level = request.patient_level or HOST_LEVEL
    got, best = loose.prediction.gb_s, ideal_gb_s(case.cluster, replace(request, required_level=level), case.tables)
    lost = ""
    if best is not None and got is None:
        lost = f" at a bandwidth that is not predicted, where one {level} gives up to {best:.1f} GB/s"
    elif best is not None and got is not None and got < best:
        lost = f" at {got:.1f} GB/s, where one {level} gives up to {best:.1f}: {1 - got / best:.0%} would be lost"
    if request.preferred_level is None:
        return _over_domains(case, level, "waits for", "it fits", lost)
    if request.gives_way:
        verb = f"is too large for any {request.preferred_level} and, while smaller jobs wait for room, waits for"
        end = "fabric.patience is over or few of them wait"
        return _over_domains(case, level, verb, "it fits", f"{lost}, which it takes once {end}")
    return _over_domains(case, level, "prefers", "it fits", f"{lost}, which it takes once fabric.patience is over")


def _over_domains(case: RefusalCase, level: str, verb: str, loosely: str, until: str) -> str:
    cluster, request, loose = case.cluster, case.request, _known(case)
    at = cluster.levels.index(level)
    free: Counter[str] = Counter()
    nodes: Counter[str] = Counter()
    ground, unlabelled = case.ground, 0
    able = [bindable(offer, request.binding) for offer in ground.offers]
    for _, number, names in ground.members():
        if gpus := able[number]:
            for name in names:
                found = cluster.nodes[name].domains[at]
                inside = found if found is not None else f"node {name}"
                free[inside] += gpus
                nodes[inside] += 1
                unlabelled += found is None
    domain, most = min(free.items(), key=lambda entry: (-entry[1], entry[0].startswith("node "), entry[0]))
    lone = f"; {count(unlabelled, 'node')} without that level, each a domain of its own" if unlabelled else ""
    enough = ", but not in shares that meet the other demands" if most >= request.gpus else ""
    is_host = level == HOST_LEVEL
    there = f"{most}" if is_host else f"{most} on {count(nodes[domain], 'node')}"
    over = count(loose.counts[at], "host") if is_host else f"{loose.counts[at]} domains of level {level}"
    return (
        f"{verb} {_gpus(request)} in one {level}; {domain} has the most free, {there}"
        f"{enough}{lone}; {loosely} over {over}{until}"
        f"{excluded(cluster, request, case.ground)}"
    )


def no_rdma(case: RefusalCase) -> str:
    """The message: there is no RDMA between all nodes."""
    request, ground = case.request, case.ground
    able = [
        (offer.terms.transports, gpus, nodes)
        for offer, nodes in ((ground.offers[number], nodes) for number, nodes in ground.counts.items())
        if (gpus := bindable(offer, request.binding))
    ]
    offers = []
    for transport in RDMA_TRANSPORTS:
        number = sum(nodes for transports, _, nodes in able if transport in transports)
        gpus = sum(gpus * nodes for transports, gpus, nodes in able if transport in transports)
        if number:
            offers.append(f"{number} {'offers' if number == 1 else 'offer'} {transport} ({count(gpus, 'GPU')})")
    return (
        f"needs {_gpus(request)} with RDMA between nodes; of {count(sum(nodes for *_, nodes in able), 'node')} with "
        f"free GPUs {listed(offers, 'and') or 'none offers it'}; it would fit over sockets (network.rdma: Preferred)"
        f"{case.but_for()}"
    )


def too_slow(case: RefusalCase) -> str:
    """The message: no placement reaches the least bandwidth."""
    request, best = replace(case.request, min_bus_bandwidth_gb_s=None, patient_level=None), _known(case)
    while best.prediction.gb_s is not None:  # each time strictly faster
        faster = case.layout(replace(request, min_bus_bandwidth_gb_s=best.prediction.gb_s + 1e-6))
        if faster is None:
            break
        best = faster
    asked = f"needs {case.request.min_bus_bandwidth_gb_s:g} GB/s"
    if best.prediction.gb_s is None:
        return f"{asked}; what the gang would reach is unknown: {best.prediction.limited_by}"
    found = f"the best placement now reaches {best.prediction.gb_s:g} GB/s: {best.prediction.limited_by}"
    if could_place(case.cluster, replace(case.request, patient_level=None), case.tables):
        return f"{asked}; {found}; lower topology.minBusBandwidthGBps, or wait for better ones"
    return f"{asked}; {found}; nor would an empty cluster reach it: lower topology.minBusBandwidthGBps"


def _known(case: RefusalCase) -> Layout:
    if case.best is None:
        raise AssertionError("only the first demand is looked at without a layout")
    return case.best


def _gpus(request: Request) -> str:
    return count(request.gpus, "GPU")
