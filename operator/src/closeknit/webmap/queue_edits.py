"""What leads from one queue to the next: as little as has changed, however long the queue is."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from closeknit.api.names import JobKey


class QueueEdit(NamedTuple):
    """At one place so many jobs go, and others come."""

    place: int
    """In the queue as the edits before this one have made it."""
    gone: int
    come: tuple[JobKey, ...]


def edits(old: Sequence[JobKey], new: Sequence[JobKey]) -> tuple[QueueEdit, ...]:
    """In the order in which they are done. A job that has moved past others goes and comes. O(n log n)."""
    if old is new:
        return ()
    first, most = 0, min(len(old), len(new))
    while first < most and old[first] == new[first]:
        first += 1
    last = 0
    while last < most - first and old[-1 - last] == new[-1 - last]:
        last += 1
    return tuple(_edits(old[first : len(old) - last], new[first : len(new) - last], first))


def _edits(old: Sequence[JobKey], new: Sequence[JobKey], first: int) -> Iterator[QueueEdit]:
    stays = _staying(old, new)
    at = place = 0
    while at < len(old) or place < len(new):
        gone = 0
        while at < len(old) and old[at] not in stays:
            at, gone = at + 1, gone + 1
        begun = place
        while place < len(new) and new[place] not in stays:
            place += 1
        if gone or place > begun:
            yield QueueEdit(first + begun, gone, tuple(new[begun:place]))
        if at < len(old):
            at, place = at + 1, place + 1


def _staying(old: Sequence[JobKey], new: Sequence[JobKey]) -> set[JobKey]:
    """As many as can be that are in both in the same order: the longest increasing run of their old places."""
    places = {key: at for at, key in enumerate(old)}
    both = [key for key in new if key in places]
    ends: list[int] = []  # the smallest old place at which a run of each length ends
    runs: list[int] = []  # of each of `both`, the length of the longest run that ends with it
    for key in both:
        at = places[key]
        length = bisect_left(ends, at)
        ends[length : length + 1] = [at]
        runs.append(length)
    stays, wanted = set[JobKey](), len(ends) - 1
    for key, length in zip(reversed(both), reversed(runs), strict=True):
        if length == wanted:
            stays.add(key)
            wanted -= 1
    return stays
