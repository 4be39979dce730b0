"""The rings that NCCL finds in a set of GPUs: as many of one speed as its links carry.

NCCL goes through a table of speeds, fastest first. For each it searches, depth first and with a limited number of
steps, for directed rings through all GPUs that share out the capacity of the links, at first over NVLink alone, then
over worse types of path. The best product of rings and speed wins; nearer paths win over farther ones.
"""

from typing import NamedTuple

from closeknit.placement.allreduce.constants import ring_speeds
from closeknit.placement.allreduce.direct_rings import AGAIN_STEPS, EXTEND_STEPS, MANY_LAID, DirectRings, is_direct
from closeknit.placement.allreduce.hops import MAX_RINGS, Hop, Hops, is_closed
from closeknit.placement.allreduce.paths import UNIT, Paths, PathType

STEPS = 1 << 12  # of one search; NCCL stops at 2^14, and more than 2^12 changes no set of the machines we know
# Beside what direct_rings.py counts each path of the set once, each GPU for each limit, and each path for each search.
PATH_STEPS, LIMIT_STEPS, READY_STEPS = 32, 16, 8
SET_STEPS = 1 << 18  # of one set, over all speeds; a set of a random graph can take millions
GIVE_UP = 0.49  # a speed below this part of the best one's is not tried any more
NO_RING = 100  # MB/s that NCCL assumes where nothing fits


class Rings(NamedTuple):
    """Rings of one set; a set of one GPU has none."""

    bandwidth_gb_s: float
    """Bus bandwidth of a ring all-reduce inside the set: rings times speed."""
    worst: PathType
    """The worst type of path that the rings may take."""
    number: int
    speed_gb_s: float
    steps: int
    """What the search took."""
    is_cut: bool = False
    """Whether it ended at its budget, so that better rings may exist."""


def rings(paths: Paths, most_steps: int = SET_STEPS, times: int = STEPS) -> Rings:
    """The rings of a set. Equal paths have equal rings, whichever machine they are of.

    `most_steps`: what all its searches may take; `times`: how often each may extend a ring. Less of either takes less,
    and may find less.
    """
    gpus = len(paths.between)
    best, worst, count, best_speed, steps = 0, PathType.SYS, 0, 0, PATH_STEPS * gpus**2
    is_short = False
    ways = Hops(paths)
    table = [round(speed * UNIT) for speed in ring_speeds(paths.sm)]
    seen: dict[tuple[int, ...], int] = {}
    for speed in table:
        if steps >= most_steps:
            break
        if speed > min(ways.fastest, paths.total) and speed != table[-1]:
            continue
        if count and speed <= GIVE_UP * best_speed:
            break
        for farthest in ways.types:
            if count and farthest > worst:
                break
            steps += LIMIT_STEPS * gpus
            limit = ways.limit(speed, farthest, best)
            if limit * speed <= best:
                continue
            steps += READY_STEPS * gpus**2
            onwards = ways.steps(speed, farthest)
            key = _alike(onwards, paths.capacity, speed)
            found = seen.get(key) if key else None
            if found is None:
                kind = DirectRings if is_direct(onwards) else _Search
                search = kind(onwards, paths.capacity, limit, most_steps - steps, times)
                found = search.run() if is_closed(onwards) else 0
                steps = most_steps - search.budget
                is_short = is_short or (times < STEPS and search.steps <= 0 and found < limit)
            if key:
                seen[key] = found
            if found * speed > best:
                best, worst, count, best_speed = found * speed, farthest, found, speed
            if best >= paths.total:
                return Rings(best / UNIT, worst, count, best_speed / UNIT, steps, steps >= most_steps)
    is_cut = is_short or steps >= most_steps
    if not count:
        return Rings(NO_RING / UNIT, PathType.SYS, 1, NO_RING / UNIT, steps, is_cut)
    return Rings(best / UNIT, worst, count, best_speed / UNIT, steps, is_cut)


def _alike(onwards: list[list[Hop]], capacity: tuple[int, ...], speed: int) -> tuple[int, ...]:
    """Equal for two searches of one set that go the same ways and lay the same rings, at whatever speed: how many ways
    there are (of two types of path the farther one has all of the nearer one's), and how many rings each link carries.
    Empty where rings do not take the same of all links."""
    if any(step.load != speed for steps in onwards for step in steps):
        return ()
    return (sum(map(len, onwards)), *[each // speed for each in capacity])


def most(paths: Paths) -> float:
    """An upper limit of the bandwidth of the rings, in GB/s, without a search: what the tightest GPU can send."""
    ways = Hops(paths)
    best = NO_RING
    for speed in ring_speeds(paths.sm):
        mb_s = round(speed * UNIT)
        if mb_s * MAX_RINGS > best:
            best = max(best, mb_s * ways.limit(mb_s, PathType.SYS, best))
    return best / UNIT


class _Search:
    """Working state of one search: the capacity that is left while rings are laid."""

    def __init__(
        self, onwards: list[list[Hop]], capacity: tuple[int, ...], limit: int, budget: int, times: int
    ) -> None:
        """`onwards`: of each GPU the ways to another; `limit`: no more rings than so many; `budget`: the steps that it
        may take; the last one may go beyond; `times`: how often it may extend a ring."""
        self.budget = budget
        self.onwards = onwards
        self.by_end = [{step.to: step for step in steps} for steps in onwards]
        self.limit = limit
        self.left = list(capacity)
        self.steps = times
        self.best = 0

    def run(self) -> int:
        """How many rings fit at once."""
        self.lay_ring(0, [])
        return self.best

    def take(self, step: Hop) -> bool:
        left, load = self.left, step.load
        for link in step.links:
            if left[link] < load:
                return False
        for link in step.links:
            left[link] -= load
        return True

    def give(self, step: Hop) -> None:
        for link in step.links:
            self.left[link] += step.load

    def lay_ring(self, laid: int, last: list[int]) -> None:
        """Lay one ring more: the last one again where it fits, then any other."""
        if self.steps <= 0 or self.budget <= 0 or self.best >= self.limit:
            return
        self.budget -= AGAIN_STEPS * len(last)
        taken: list[Hop] = []
        for start, end in zip(last, last[1:] + last[:1], strict=True):
            step = self.by_end[start].get(end)
            if step is None or not self.take(step):
                break
            taken.append(step)
        if last and len(taken) == len(last):
            self.best = max(self.best, laid + 1)
            self.lay_ring(laid + 1, last)
        for step in taken:
            self.give(step)
        if laid * len(self.onwards) < MANY_LAID:
            self.extend([0], 1, laid)

    def extend(self, ring: list[int], seen: int, laid: int) -> None:
        """Extend an open ring, whose GPUs are also the mask `seen`, by one GPU; close it when all are in."""
        self.steps -= 1
        if self.steps <= 0 or self.budget <= 0 or self.best >= self.limit:
            return
        if len(ring) == len(self.onwards):
            closing = self.by_end[ring[-1]].get(ring[0])
            if closing is not None and self.take(closing):
                self.best = max(self.best, laid + 1)
                self.lay_ring(laid + 1, ring)
                self.give(closing)
            return
        onwards, left = self.onwards[ring[-1]], self.left
        self.budget -= EXTEND_STEPS + len(onwards)
        for to, links, load in onwards:  # take and give, without their calls
            if seen >> to & 1:
                continue
            for link in links:
                if left[link] < load:
                    break
            else:
                for link in links:
                    left[link] -= load
                ring.append(to)
                self.extend(ring, seen | 1 << to, laid)
                ring.pop()
                for link in links:
                    left[link] += load
