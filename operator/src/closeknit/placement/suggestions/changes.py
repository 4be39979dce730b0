"""The nearest changes that make a refused gang fit: each is one field of the job, and each was placed again.

Less of what its Pods need besides GPUs comes first, then changes to what the job asks of placement, one at a time and,
where none of them alone is enough, two at a time or one with less; then the GPUs that would have to become free, and
the most GPUs that the job could have as it is. It takes some dozens of questions whether something fits, and one
placement for each change that is told: an inquiry stops after each of them, so that no other job waits for all of it.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import gcd, lcm
from typing import NamedTuple

from closeknit.api.trainingjob import BindingPolicy, NvlinkPolicy, RdmaPolicy
from closeknit.cluster.cluster import Cluster
from closeknit.placement.candidates.binding import seat
from closeknit.placement.gang.cache import Tables
from closeknit.placement.gpusets.set_value import SetCriteria
from closeknit.placement.place import can_place, place
from closeknit.placement.refusals.ideal import ideal_gb_s
from closeknit.placement.refusals.refusal import unknown
from closeknit.placement.suggestions.bisection import Freed
from closeknit.placement.suggestions.lower_requests import lower_requests
from closeknit.placement.suggestions.releases import release
from closeknit.placement.suggestions.vacancies import vacate
from closeknit.placement.values.placement import Placement, TransportChoice
from closeknit.placement.values.request import Request
from closeknit.placement.values.sentences import count

MOST_TOLD = 4
EACH_ASKED = 32  # numbers of GPUs; twice what halving 65,536 takes


@dataclass(frozen=True, slots=True)
class Alternative:
    """A change that makes the gang fit now."""

    what: str
    """The changed fields, in the words of the spec."""
    request: Request
    """With the change."""
    placement: Placement
    ideal_gb_s: float | None
    """The best bandwidth that the unchanged job could have in an empty copy of the cluster; None where unknown."""
    freed: Freed | None = None
    """What must become free, if that is the change."""

    def __str__(self) -> str:
        gpus = sum(len(share.gpus) for share in self.placement.shares)
        noun = "MIG device" if any(share.mig_device for share in self.placement.shares) else "GPU"
        found = f"with {self.what}: {count(gpus, noun)} on {count(len(self.placement.shares), 'node')}"
        got, best = self.placement.predicted_bus_bandwidth_gb_s, self.ideal_gb_s
        if got is None:
            is_tcp = self.placement.transport is TransportChoice.SOCKETS
            return f"{found}{' over TCP' if is_tcp else ''}, bandwidth unknown"
        if best is None or got >= best:
            return f"{found}, {got:.1f} GB/s"
        return f"{found}, {got:.1f} GB/s: {best - got:.1f} less than the {best:.1f} that it could have at best"


class _Change(NamedTuple):
    """A change that may help."""

    what: str
    of: Callable[[Request], Request]


Inquiry = Generator[None, None, tuple[Alternative, ...]]


def nearest_changes(cluster: Cluster, request: Request, tables: Tables) -> tuple[Alternative, ...]:
    """The changes that make a refused request fit, the smallest first; empty without any."""
    asked = inquiry(cluster, request, tables)
    while True:
        try:
            next(asked)
        except StopIteration as over:
            found: tuple[Alternative, ...] = over.value
            return found


def inquiry(cluster: Cluster, request: Request, tables: Tables) -> Inquiry:
    """The same, one question at a time."""
    changes = list(_changes(cluster, request))
    found = yield from lower_requests(cluster, request, tables)
    found += yield from _placeable(cluster, request, tables, ((change,) for change in changes))
    if not found:
        found = yield from _placeable(cluster, request, tables, combinations(changes, 2))
    if not found:
        found = yield from _with_less(cluster, request, tables, changes)
    is_known = unknown(cluster, request) is None and request.mig is None  # of one rank, no bandwidth and no set
    best = ideal_gb_s(cluster, request, tables) if is_known else None
    yield
    freed = (yield from release(cluster, request, tables)) if is_known else None
    vacated = yield from vacate(cluster, request, tables)
    fewer = yield from _fewer(cluster, request, tables)
    others = []
    if vacated is not None:
        others.append(Alternative(str(vacated), request, vacated.placement, best, Freed({}, vacated.room)))
    if freed is not None:
        others.append(Alternative(str(freed), request, freed.placement, best, Freed(freed.gpus, {})))
    room = MOST_TOLD - len(others) - (fewer is not None)
    told = yield from _told(cluster, found[:room], best, tables)
    return (*told, *others, *(yield from _told(cluster, [fewer] if fewer else [], best, tables)))


def _told(
    cluster: Cluster, found: list[tuple[str, Request]], best: float | None, tables: Tables
) -> Generator[None, None, list[Alternative]]:
    told: list[Alternative] = []
    for what, asked in found:
        answer = place(cluster, asked, tables)
        yield
        if isinstance(answer, Placement):
            told.append(Alternative(what, asked, answer, best))
    return told


def _placeable(
    cluster: Cluster, request: Request, tables: Tables, choices: Iterator[tuple[_Change, ...]]
) -> Generator[None, None, list[tuple[str, Request]]]:
    """The choices that fit; only the first of changes to one field."""
    found: dict[tuple[str, ...], tuple[str, Request]] = {}
    for chosen in choices:
        fields = tuple(change.what.partition(":")[0] for change in chosen)
        if fields in found or len(set(fields)) < len(fields) or len(found) == MOST_TOLD:
            continue
        asked = request
        for change in chosen:
            asked = change.of(asked)
        if can_place(cluster, asked, tables):
            found[fields] = " and ".join(change.what for change in chosen), asked
        yield
    return list(found.values())


def _with_less(
    cluster: Cluster, request: Request, tables: Tables, changes: Sequence[_Change]
) -> Generator[None, None, list[tuple[str, Request]]]:
    """Changes that fit if the Pods also request less; only the first for one field."""
    found: dict[str, tuple[str, Request]] = {}
    for change in changes:
        name = change.what.partition(":")[0]
        if name not in found and len(found) < MOST_TOLD:
            for less, asked in (yield from lower_requests(cluster, change.of(request), tables))[:1]:
                found[name] = f"{change.what} and {less}", asked
    return list(found.values())


def _changes(cluster: Cluster, request: Request) -> Iterator[_Change]:
    """Possible changes; for one field the smallest first."""
    if request.patient_level is not None:
        what = "topology.fabric.patience: 0s" if request.preferred_level else "topology.nvlink: Ignored"
        yield _Change(what, _without_patience)
    yield from _of_links(cluster, request)
    yield from _of_levels(cluster, request)
    if request.min_bus_bandwidth_gb_s is not None:
        yield _Change("topology.minBusBandwidthGBps: none", lambda asked: replace(asked, min_bus_bandwidth_gb_s=None))
    yield from _of_shares(request)
    yield from _of_gpus(request)
    if request.is_selective:
        yield _Change("nodeSelector and affinity: none", lambda asked: replace(asked, node_selector=(), affinity=None))


def _without_patience(asked: Request) -> Request:
    """A job that names no level waits for one machine unless NVLink is nothing to it."""
    links = asked.nvlink if asked.preferred_level else NvlinkPolicy.IGNORED
    return replace(asked, patient_level=None, nvlink=links)


def _of_links(cluster: Cluster, request: Request) -> Iterator[_Change]:
    if request.nvlink is NvlinkPolicy.REQUIRED:
        yield _Change("topology.nvlink: Preferred", _with_links(NvlinkPolicy.PREFERRED))
    if request.nvlink is not NvlinkPolicy.IGNORED and request.group > 1:
        yield _Change("topology.nvlink: Ignored", _with_links(NvlinkPolicy.IGNORED))
    if request.rdma is RdmaPolicy.REQUIRED:
        yield _Change("network.rdma: Preferred", lambda asked: replace(asked, rdma=RdmaPolicy.PREFERRED))
    if request.traffic_class is not None and request.traffic_class not in cluster.fabric.traffic_classes:
        yield _Change("network.trafficClass: none", lambda asked: replace(asked, traffic_class=None))


def _with_links(policy: NvlinkPolicy) -> Callable[[Request], Request]:
    return lambda asked: replace(asked, nvlink=policy, mixes_kinds=True)


def _of_levels(cluster: Cluster, request: Request) -> Iterator[_Change]:
    if request.required_level is None:
        return
    if request.required_level in cluster.levels:
        for level in reversed(cluster.levels[: cluster.levels.index(request.required_level)]):
            yield _Change(f"topology.fabric.required: {level}", _inside(level))
    yield _Change("topology.fabric.required: none", _inside(None))


def _of_shares(request: Request) -> Iterator[_Change]:
    if request.gpus_per_node is None:
        return
    for number in range(request.gpus_per_node - 1, 0, -1):
        if request.gpus % number == 0 and number % request.group == 0:
            yield _Change(f"topology.gpusPerNode: {number}", _on_each(number))
    yield _Change("topology.gpusPerNode: none", _on_each(None))


def _of_gpus(request: Request) -> Iterator[_Change]:
    if request.mig is not None:
        yield _Change("gpu.mig: none", lambda asked: replace(asked, mig=None))
    if request.products:
        yield _Change("gpu.products: any", lambda asked: replace(asked, products=()))
    if request.min_memory_bytes is not None:
        yield _Change("gpu.minMemory: none", lambda asked: replace(asked, min_memory_bytes=None))
    if request.binding is not BindingPolicy.AUTO:
        yield _Change("gpu.binding: Auto", lambda asked: replace(asked, binding=BindingPolicy.AUTO))
    if request.binding is not BindingPolicy.BEST_EFFORT:
        yield _Change("gpu.binding: BestEffort", lambda asked: replace(asked, binding=BindingPolicy.BEST_EFFORT))


def _inside(level: str | None) -> Callable[[Request], Request]:
    return lambda asked: replace(asked, required_level=level)


def _on_each(number: int | None) -> Callable[[Request], Request]:
    return lambda asked: replace(asked, gpus_per_node=number)


def _fewer(cluster: Cluster, request: Request, tables: Tables) -> Generator[None, None, tuple[str, Request] | None]:
    """The most GPUs that fit: more may fit where fewer do not, if nodes are given whole or rails make shares equal.

    So each number is asked, the largest first; of more than EACH_ASKED by halving, which may miss some: 16 questions.
    """
    step = _step(cluster, request, tables)
    reached, beyond = 0, -(-request.gpus // step)
    are_few = beyond - 1 <= EACH_ASKED
    while beyond - reached > 1:
        middle = beyond - 1 if are_few else (reached + beyond) // 2
        if can_place(cluster, replace(request, gpus=middle * step), tables):
            reached = middle
        else:
            beyond = middle
        yield
    if not reached:
        return None
    return f"gpus: {reached * step}", replace(request, gpus=reached * step)


def _step(cluster: Cluster, request: Request, tables: Tables) -> int:
    """The step between possible GPU counts: degrees and shares divide them, and a node bound whole gives all it has or
    nothing, so that more GPUs may fit than fewer."""
    step = request.pipeline * request.expert_block
    if request.gpus_per_node is not None:
        return lcm(step, request.gpus_per_node)
    ground, given = tables.ground(cluster, request), 0
    for number in ground.counts:
        offer = ground.offers[number]
        for size in range(1, offer.gpus + 1):
            if given != 1 and seat(offer.terms, SetCriteria(size), request.binding):
                given = gcd(given, size)
    return lcm(step, given or 1)
