"""The search of rings.py where each way onwards is a link of its own, as between GPUs that NVLinks join two by two.

What is left of each link is then a number of rings, and the ways that a GPU has left are a mask of GPUs, so that
nothing is asked of those that cannot be next. It goes the same ways in the same order, counts the same steps and finds
the same rings as the search over any links, in two thirds of its time.
"""

from collections.abc import Sequence

from closeknit.placement.allreduce.hops import Hop

# A step takes some 0.25 us, whatever the graph: to look at one way onwards is one, to go it four, to lay a ring again
# two for each GPU.
EXTEND_STEPS, AGAIN_STEPS = 4, 2
MANY_LAID = 512  # GPUs in the rings that are laid at once: Python's own stack ends at 1,000 calls


def is_direct(onwards: Sequence[Sequence[Hop]]) -> bool:
    """Whether each way has a link of its own."""
    for steps in onwards:
        for step in steps:
            if len(step.links) > 1:
                return False
    return len({step.links for steps in onwards for step in steps}) == sum(map(len, onwards))


class DirectRings:
    """Working state of one search: the rings that each link has left."""

    def __init__(
        self, onwards: Sequence[Sequence[Hop]], capacity: Sequence[int], limit: int, budget: int, times: int
    ) -> None:
        """As of the search over any links."""
        self.budget = budget
        self.steps = times
        self.limit = limit
        self.best = 0
        self._every = (1 << len(onwards)) - 1
        self._costs = [EXTEND_STEPS + len(steps) for steps in onwards]
        self._left = [[0] * len(onwards) for _ in onwards]
        self._open = [sum([1 << step.to for step in steps]) for steps in onwards]
        """Of each GPU those to which there is a way left."""
        self._runs = [_runs([step.to for step in steps]) for steps in onwards]
        for row, steps in zip(self._left, onwards, strict=True):
            for to, links, load in steps:
                row[to] = capacity[links[0]] // load

    def run(self) -> int:
        """How many rings fit at once."""
        self._lay(0, [])
        return self.best

    def _take(self, start: int, end: int) -> None:
        row = self._left[start]
        row[end] -= 1
        if not row[end]:
            self._open[start] ^= 1 << end

    def _give(self, start: int, end: int) -> None:
        row = self._left[start]
        if not row[end]:
            self._open[start] ^= 1 << end
        row[end] += 1

    def _lay(self, laid: int, last: list[int]) -> None:
        """Lay one ring more: the last one again where it fits, then any other."""
        if self.steps <= 0 or self.budget <= 0 or self.best >= self.limit:
            return
        self.budget -= AGAIN_STEPS * len(last)
        taken: list[tuple[int, int]] = []
        for start, end in zip(last, last[1:] + last[:1], strict=True):
            if not self._left[start][end]:
                break
            self._take(start, end)
            taken.append((start, end))
        if last and len(taken) == len(last):
            self.best = max(self.best, laid + 1)
            self._lay(laid + 1, last)
        for start, end in taken:
            self._give(start, end)
        if laid * len(self._left) < MANY_LAID:
            self._extend([0], 1, laid)

    def _extend(self, ring: list[int], seen: int, laid: int) -> None:
        """Extend an open ring, whose GPUs are also the mask `seen`, by one GPU; close it when all are in."""
        self.steps -= 1
        if self.steps <= 0 or self.budget <= 0 or self.best >= self.limit:
            return
        at = ring[-1]
        if seen == self._every:
            if self._open[at] & 1:
                self._take(at, 0)
                self.best = max(self.best, laid + 1)
                self._lay(laid + 1, ring)
                self._give(at, 0)
            return
        self.budget -= self._costs[at]
        open_, row = self._open, self._left[at]
        for run in self._runs[at]:
            next_ = run & open_[at] & ~seen
            while next_:
                bit = next_ & -next_
                next_ ^= bit
                to, now = bit.bit_length() - 1, seen | bit
                if not open_[to] & ~now and now != self._every:  # to go there and back, without its call
                    self.steps -= 1
                    if self.steps <= 0 or self.budget <= 0 or self.best >= self.limit:
                        return
                    self.budget -= self._costs[to]
                    continue
                row[to] -= 1
                if not row[to]:
                    open_[at] ^= bit
                self._extend([*ring, to], now, laid)
                if not row[to]:
                    open_[at] ^= bit
                row[to] += 1


def _runs(order: Sequence[int]) -> list[int]:
    """An order of GPUs as masks, each to be read upwards."""
    runs, before = list[int](), len(order) + 1
    for gpu in order:
        if gpu < before or not runs:
            runs.append(0)
        runs[-1] |= 1 << gpu
        before = gpu
    return runs
