"""The rings that NCCL finds in a set of GPUs: as many of one speed as its links carry.

NCCL goes through a table of speeds, fastest first. For each it searches, depth first and with a limited number of
steps, for directed rings through all GPUs that share out the capacity of the links, at first over NVLink alone, then
over worse types of path. The best product of rings and speed wins; nearer paths win over farther ones.
"""

from typing import NamedTuple

from closeknit.placement.paths import UNIT, Paths, PathType
from closeknit.placement.speeds import INTEL_HOST_BRIDGE_FACTOR, ring_speeds

STEPS = 1 << 12  # of one search; NCCL stops at 2^14, and more than 2^12 changes no set of the machines we know
MAX_RINGS = 32  # NCCL's limit of channels before it doubles them
# A step takes some 0.35 us, whatever the graph: to look at one way onwards is one, to go it four, to lay a ring again
# two for each GPU, and to get ready for one speed ten for each path of the set.
EXTEND_STEPS, PATH_STEPS = 4, 10
SET_STEPS = 1 << 18  # of one set, over all speeds; a set of a random graph can take millions
MANY_LAID = 512  # GPUs in the rings that are laid at once: Python's own stack ends at 1,000 calls
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
    """What the search took; SET_STEPS and more where it ended at its budget, and better rings may exist."""


def rings(paths: Paths) -> Rings:
    """The rings of a set. Equal paths have equal rings, whichever machine they are of."""
    best, worst, count, best_speed, steps = 0, PathType.SYS, 0, 0, 0
    table = [round(speed * UNIT) for speed in ring_speeds(paths.sm)]
    nearest = {path.type for row in paths.between for path in row if path}
    fastest = max(min(paths.capacity[link] for link in path.links) for row in paths.between for path in row if path)
    for speed in table:
        if steps >= SET_STEPS:
            break
        if speed > min(fastest, paths.total) and speed != table[-1]:
            continue
        if count and speed <= GIVE_UP * best_speed:
            break
        for farthest in sorted(nearest):
            if count and farthest > worst:
                break
            steps += PATH_STEPS * len(paths.between) ** 2
            search = _Search(paths, speed, farthest, SET_STEPS - steps)
            if search.limit * speed <= best:
                continue
            found = search.run()
            steps = SET_STEPS - search.budget
            if found * speed > best:
                best, worst, count, best_speed = found * speed, farthest, found, speed
            if best >= paths.total:
                return Rings(best / UNIT, worst, count, best_speed / UNIT, steps)
    if not count:
        return Rings(NO_RING / UNIT, PathType.SYS, 1, NO_RING / UNIT, steps)
    return Rings(best / UNIT, worst, count, best_speed / UNIT, steps)


def most(paths: Paths) -> float:
    """An upper limit of the bandwidth of the rings, in GB/s, without a search: what the tightest GPU can send."""
    ways = _widest(paths)
    table = [round(speed * UNIT) for speed in ring_speeds(paths.sm)]
    return max(NO_RING, *(speed * _least_room(ways, speed) for speed in table)) / UNIT


def _widest(paths: Paths) -> list[tuple[tuple[int, int, int], ...]]:
    """For each GPU, to send and to receive: (capacity of its link, width of the widest way over it, the same of the
    widest that an Intel host bridge slows)."""
    sent: list[dict[int, list[int]]] = [{} for _ in paths.between]
    received: list[dict[int, list[int]]] = [{} for _ in paths.between]
    capacity = paths.capacity
    for start, row in enumerate(paths.between):
        for to, path in enumerate(row):
            if path is None:
                continue
            width = min([capacity[link] for link in path.links])
            kind = 1 if paths.intel and path.type is PathType.PHB else 0
            for widths in (
                sent[start].setdefault(path.links[0], [0, 0]),
                received[to].setdefault(path.links[-1], [0, 0]),
            ):
                widths[kind] = max(widths[kind], width)
    return [
        tuple((capacity[link], plain, slowed) for link, (plain, slowed) in ways.items()) for ways in (*sent, *received)
    ]


def _least_room(ways: list[tuple[tuple[int, int, int], ...]], speed: int) -> int:
    """`_limit` over all paths: how many rings of this speed the tightest GPU has room for."""
    times, parts = INTEL_HOST_BRIDGE_FACTOR
    slowed = speed * times // parts
    least = MAX_RINGS
    for links in ways:
        room = 0
        for capacity, width, slowed_width in links:
            if width >= speed:
                room += capacity // speed
            elif slowed_width >= slowed:
                room += capacity // slowed
        least = min(least, room)
    return least


class _Step(NamedTuple):
    """One way onwards from a GPU."""

    to: int
    links: tuple[int, ...]
    load: int  # MB/s that one ring takes of each link


def _choices(paths: Paths, speed: int, farthest: PathType) -> list[list[_Step]]:
    """For each GPU the ways onwards that can carry a ring of this speed at all: fastest first, then fewest links."""
    times, parts = INTEL_HOST_BRIDGE_FACTOR
    choices = []
    for row in paths.between:
        steps = []
        for to, path in enumerate(row):
            if path is None or path.type > farthest:
                continue
            load = speed * times // parts if paths.intel and path.type is PathType.PHB else speed
            width = min(paths.capacity[link] for link in path.links)
            if width >= load:
                steps.append((-width, len(path.links), to, _Step(to, path.links, load)))
        choices.append([step for *_, step in sorted(steps)])
    return choices


def _limit(choices: list[list[_Step]], capacity: tuple[int, ...]) -> int:
    """No more rings than the tightest GPU has room to send, and to receive."""
    sent: list[dict[int, int]] = [{} for _ in choices]  # by first link: the least load
    received: list[dict[int, int]] = [{} for _ in choices]
    for start, steps in enumerate(choices):
        for step in steps:
            first, last = step.links[0], step.links[-1]
            sent[start][first] = min(step.load, sent[start].get(first, step.load))
            received[step.to][last] = min(step.load, received[step.to].get(last, step.load))
    return min(
        MAX_RINGS, *(sum(capacity[link] // load for link, load in loads.items()) for loads in [*sent, *received])
    )


class _Search:
    """Working state of one search: the capacity that is left while rings are laid."""

    def __init__(self, paths: Paths, speed: int, farthest: PathType, budget: int) -> None:
        """`budget`: the steps that it may take; the last one may go beyond."""
        self.budget = budget
        self.choices = _choices(paths, speed, farthest)
        self.by_end = [{step.to: step for step in steps} for steps in self.choices]
        self.limit = _limit(self.choices, paths.capacity)
        self.left = list(paths.capacity)
        self.steps = STEPS
        self.best = 0

    def run(self) -> int:
        """How many rings fit at once."""
        self.lay_ring(0, [])
        return self.best

    @property
    def over(self) -> bool:
        return self.steps <= 0 or self.budget <= 0 or self.best >= self.limit

    def take(self, step: _Step) -> bool:
        left, load = self.left, step.load
        for link in step.links:
            if left[link] < load:
                return False
        for link in step.links:
            left[link] -= load
        return True

    def give(self, step: _Step) -> None:
        for link in step.links:
            self.left[link] += step.load

    def lay_ring(self, laid: int, last: list[int]) -> None:
        """Lay one ring more: the last one again where it fits, then any other."""
        if self.over:
            return
        self.budget -= 2 * len(last)
        taken: list[_Step] = []
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
        if laid * len(self.choices) < MANY_LAID:
            self.extend([0], laid)

    def extend(self, ring: list[int], laid: int) -> None:
        """Extend an open ring by one GPU; close it when all are in."""
        self.steps -= 1
        if self.steps <= 0 or self.budget <= 0 or self.best >= self.limit:
            return
        if len(ring) == len(self.choices):
            closing = self.by_end[ring[-1]].get(ring[0])
            if closing is not None and self.take(closing):
                self.best = max(self.best, laid + 1)
                self.lay_ring(laid + 1, ring)
                self.give(closing)
            return
        onwards = self.choices[ring[-1]]
        self.budget -= EXTEND_STEPS + len(onwards)
        for step in onwards:
            if step.to not in ring and self.take(step):
                self.extend([*ring, step.to], laid)
                self.give(step)
