"""The nearest changes that make a gang fit that does not: each is one field of the job, and each was placed again.

Changes to what the job asks of placement come first, one at a time and, where none of them alone is enough, two at a
time; then the most GPUs that the job could have as it is. It takes some dozens of questions whether something fits, and
one placement for each change that is told: for whoever asks about one job, and not for every decision.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

from closeknit.api.trainingjob import BindingPolicy, NvlinkPolicy, RdmaPolicy
from closeknit.cluster.cluster import Cluster
from closeknit.placement.place import can_place, ideal_gb_s, place
from closeknit.placement.placement import Placement
from closeknit.placement.refusal import unknown
from closeknit.placement.request import Request
from closeknit.placement.tables import Tables
from closeknit.placement.words import count

MOST_TOLD = 4


@dataclass(frozen=True, slots=True)
class Alternative:
    """A change that makes the gang fit now."""

    what: str
    """The fields as they would be, in the words of the spec."""
    request: Request
    """With the change."""
    placement: Placement
    ideal_gb_s: float | None
    """The best bandwidth that the unchanged job could have in an empty copy of the cluster; None where unknown."""

    def __str__(self) -> str:
        gpus = sum(len(share.gpus) for share in self.placement.shares)
        found = f"with {self.what}: {count(gpus, 'GPU')} on {count(len(self.placement.shares), 'node')}"
        got, best = self.placement.predicted_bus_bandwidth_gb_s, self.ideal_gb_s
        if got is None:
            return f"{found}, bandwidth unknown"
        if best is None or got >= best:
            return f"{found}, {got:.1f} GB/s"
        return f"{found}, {got:.1f} GB/s: {best - got:.1f} less than the {best:.1f} that it could have at best"


class _Change(NamedTuple):
    """A change that may help."""

    what: str
    of: Callable[[Request], Request]


def nearest(cluster: Cluster, request: Request, tables: Tables) -> tuple[Alternative, ...]:
    """The changes that make a refused request fit, what changes least first; empty where none was found."""
    changes = list(_changes(cluster, request))
    found = _placeable(cluster, request, tables, ((change,) for change in changes))
    if not found:
        found = _placeable(cluster, request, tables, combinations(changes, 2))
    if (fewer := _fewer(cluster, request, tables)) is not None:
        found = [*found[: MOST_TOLD - 1], fewer]
    best = ideal_gb_s(cluster, request, tables) if unknown(cluster, request) is None else None
    told = []
    for what, asked in found[:MOST_TOLD]:
        answer = place(cluster, asked, tables)
        if isinstance(answer, Placement):
            told.append(Alternative(what, asked, answer, best))
    return tuple(told)


def _placeable(
    cluster: Cluster, request: Request, tables: Tables, choices: Iterator[tuple[_Change, ...]]
) -> list[tuple[str, Request]]:
    """The choices that fit, of changes to one field the first alone."""
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
    return list(found.values())


def _changes(cluster: Cluster, request: Request) -> Iterator[_Change]:
    """What could be asked otherwise; of one field what changes least first."""
    if request.patient_level is not None:
        yield _Change("topology.fabric.patience: 0s", lambda asked: replace(asked, patient_level=None))
    yield from _of_links(request)
    yield from _of_levels(cluster, request)
    if request.min_bus_bandwidth_gb_s is not None:
        yield _Change("topology.minBusBandwidthGBps: none", lambda asked: replace(asked, min_bus_bandwidth_gb_s=None))
    yield from _of_shares(request)
    yield from _of_gpus(request)
    if request.selects:
        yield _Change("nodeSelector and affinity: none", lambda asked: replace(asked, node_selector=(), affinity=None))


def _of_links(request: Request) -> Iterator[_Change]:
    if request.nvlink is NvlinkPolicy.REQUIRED:
        yield _Change("topology.nvlink: Preferred", lambda asked: replace(asked, nvlink=NvlinkPolicy.PREFERRED))
    if request.nvlink is not NvlinkPolicy.IGNORED and request.group > 1:
        yield _Change("topology.nvlink: Ignored", lambda asked: replace(asked, nvlink=NvlinkPolicy.IGNORED))
    if request.rdma is RdmaPolicy.REQUIRED:
        yield _Change("network.rdma: Preferred", lambda asked: replace(asked, rdma=RdmaPolicy.PREFERRED))


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


def _fewer(cluster: Cluster, request: Request, tables: Tables) -> tuple[str, Request] | None:
    """The most GPUs that fit, by halving: 16 questions at most."""
    step = request.tensor * request.context * request.pipeline * request.expert
    if request.gpus_per_node is not None:
        step = max(step, request.gpus_per_node)
        if step % request.gpus_per_node or step % request.group:
            return None
    reached, beyond = 0, request.gpus // step
    while beyond - reached > 1:
        middle = (reached + beyond) // 2
        if can_place(cluster, replace(request, gpus=middle * step), tables):
            reached = middle
        else:
            beyond = middle
    if not reached:
        return None
    return f"gpus: {reached * step}", replace(request, gpus=reached * step)
