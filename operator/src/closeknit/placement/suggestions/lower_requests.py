"""Lower requests of a refused gang's Pods: the most with which it would fit.

Of one resource less, all others as they are; where that is never enough, of all that are short in one proportion, and
then of each as much more as the others leave. A question more than a guess by count, as a rule.
"""

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Generic, NamedTuple, TypeVar

from closeknit.api.names import POD_COUNT
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.objects.pod_requests import Amounts, Needs
from closeknit.placement.candidates.resource_fit import fits, rounded, told
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place
from closeknit.placement.values.request import Request
from closeknit.placement.values.sentences import listed

T = TypeVar("T", int, Fraction)


class _Room(NamedTuple):
    """A node's free resources."""

    spare: Amounts | None
    """None if unknown."""
    gpus: int
    """That are free."""
    domain: str
    """Of the level that the gang is kept to."""


class _Left(NamedTuple, Generic[T]):
    """The rest beside so many free GPUs."""

    amount: T
    gpus: int
    domain: str


def lower_requests(
    cluster: Cluster, request: Request, tables: Tables
) -> Generator[None, None, list[tuple[str, Request]]]:
    """Requests that fit, each with its words; empty where CPU and the like are not the reason. Yields to others after
    each question."""
    rooms = _rooms(cluster, request)
    short = [
        resource
        for resource, amount in request.needs
        if resource != POD_COUNT
        and any(room.spare is not None and room.spare.get(resource, 0) < amount for room in rooms)
    ]
    if not short or not (yield from _asked(cluster, _with(request, dict.fromkeys(short, 0)), tables)):
        return []
    found = []
    for resource in short:
        less = yield from _one(cluster, request, tables, rooms, resource)
        if less is not None:
            found.append((_words(request, less), less))
    if not found:
        less = yield from _all(cluster, request, tables, rooms, short)
        found.append((_words(request, less), less))
    return found


def _rooms(cluster: Cluster, request: Request) -> list[_Room]:
    level = request.level
    at = cluster.levels.index(level) if level is not None and level in cluster.levels else None
    return [
        _Room(view.spare, view.free_gpus, "" if at is None else view.domains[at] or view.name)
        for view in cluster.nodes.values()
    ]


def _asked(cluster: Cluster, request: Request, tables: Tables) -> Generator[None, None, bool]:
    answer = can_place(cluster, request, tables)
    yield
    return answer


def _one(
    cluster: Cluster, request: Request, tables: Tables, rooms: Sequence[_Room], resource: str
) -> Generator[None, None, Request | None]:
    """The request with the most of one resource that fits; None where none of it is too much."""
    asked, others, left = dict(request.needs)[resource], _with(request, {resource: 0}).needs, list[_Left[int]]()
    for room in rooms:
        if fits(room.spare, others):
            amount = asked if room.spare is None else room.spare.get(resource, 0)
            left.append(_Left(rounded(resource, amount) if amount < asked else asked, room.gpus, room.domain))

    def cut(amount: int) -> Request:
        return _with(request, {resource: amount})

    if not left:
        return None
    most = yield from _most(cluster, tables, left, asked, cut)
    return None if most is None else cut(most)


def _all(
    cluster: Cluster, request: Request, tables: Tables, rooms: Sequence[_Room], short: Sequence[str]
) -> Generator[None, None, Request]:
    """The request with the most of all short resources that fits; without any of them it does."""
    needs = dict(request.needs)

    def cut(by: Fraction) -> Request:
        return _with(request, {resource: rounded(resource, int(needs[resource] * by)) for resource in short})

    left, whole = list[_Left[Fraction]](), Fraction(1)
    for room in rooms:
        spare = needs if room.spare is None else room.spare
        part = min(whole, *(Fraction(spare.get(resource, 0), needs[resource]) for resource in short))
        left.append(_Left(part, room.gpus, room.domain))
    less = cut((yield from _most(cluster, tables, left, whole, cut)) or Fraction(0))
    for resource in short:
        whole_again = _with(less, {resource: needs[resource]})
        if (yield from _asked(cluster, whole_again, tables)):
            less = whole_again
        else:
            less = (yield from _one(cluster, whole_again, tables, rooms, resource)) or less
    return less


def _most(
    cluster: Cluster, tables: Tables, left: Sequence[_Left[T]], full: T, cut: Callable[[T], Request]
) -> Generator[None, None, T | None]:
    """The most below the request with which it fits, by halving; None without any. The first guess is the most that
    leaves enough free GPUs."""
    request = cut(full)
    most = _guess(left, request.gpus if request.mig is None else 0)
    order = sorted({each.amount for each in left if each.amount < full and each.amount <= most} | {full * 0})
    reached, beyond = -1, len(order)
    middle = beyond - 1
    while beyond - reached > 1:
        if (yield from _asked(cluster, cut(order[middle]), tables)):
            reached = middle
        else:
            beyond = middle
        middle = (reached + beyond) // 2
    return order[reached] if reached >= 0 else None


def _guess(left: Sequence[_Left[T]], gpus: int) -> T:
    """The most beside so many GPUs of one domain; else the least."""
    counted = Counter[str]()
    for each in sorted(left, reverse=True):
        counted[each.domain] += each.gpus
        if counted[each.domain] >= gpus:
            return each.amount
    return min(left).amount


def _with(request: Request, amounts: Amounts) -> Request:
    needs = {**dict(request.needs), **amounts}
    return replace(request, needs=tuple(sorted((resource, amount) for resource, amount in needs.items() if amount)))


def _words(before: Request, now: Request) -> str:
    """`requests: 24 cpu and no memory on each node`."""
    return f"requests: {listed([*_parts(before.needs, dict(now.needs))], 'and')} on each node"


def _parts(before: Needs, now: Amounts) -> list[str]:
    return [
        f"{told(resource, now[resource]) if resource in now else 'no'} {resource}"
        for resource, amount in before
        if now.get(resource, 0) < amount
    ]
