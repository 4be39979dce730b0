"""The order of a gang's hosts that sends the fewest bytes across domains, the sum over all levels.

Hosts of one innermost domain are all alike here, so that an order is a sequence of domains. A gang with one axis
between hosts has the fabric's own order, which is the best for a ring. Otherwise orders are laid out in lines (stages,
rows of equal place in all stages, expert groups) so that as many lines as can be lie in one domain or make up whole
ones together, or run through the domains to and fro; the best of them is improved by swaps of hosts and of lines while
one helps.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from closeknit.placement.ranks.axis_traffic import Edges, between_hosts
from closeknit.placement.ranks.host_lines import filled, wound
from closeknit.placement.values.request import Request

ORDER_STEPS = 400_000  # looks at what one position exchanges with another: some 0.25 s
WOUND_STEPS = 60_000  # to choose among orders that run through the domains one after the other: some 15 ms
AGAIN_STEPS = 300_000  # of these to look beyond the first order that no swap makes better: some 0.1 s
MANY_HOSTS = 2048  # more of them keep the fabric's order
MANY_DOMAINS = 400  # of the innermost level: how far apart any two are is a table
MANY_PAIRS = 500_000  # of ranks that exchange tokens: beyond them, too
NEAR = 1e-9  # sums of fractions: no swap is for less


def has_order(request: Request, hosts: int) -> bool:
    """Whether ranks of so many hosts exchange anything but what goes round one ring of all of them, and are no more
    than can be ordered in some tenths of a second."""
    pairs = request.gpus // request.expert * min(request.expert, hosts) ** 2 // 2
    if hosts > MANY_HOSTS or pairs > MANY_PAIRS:
        return False
    is_one_ring = request.pipeline == request.expert == 1 and request.gpus % (hosts * request.group) == 0
    return hosts > 2 and not is_one_ring


def ordered(domains: Sequence[tuple[str, ...]], request: Request) -> list[int]:
    """Positions of the hosts of `domains` (outermost first, in fabric order, equal shares) in rank order."""
    hosts = len(domains)
    standing = list(range(hosts))
    if not has_order(request, hosts) or not 1 < len(set(domains)) <= MANY_DOMAINS:
        return standing
    edges = between_hosts(request, request.gpus // hosts)
    places = _Places(domains, edges)
    lines = _lines(request, hosts)
    starts = [list(places.labels), *(laid for length, stride in lines for laid in _laid_out(places, length, stride))]
    if request.pipeline > 1 and hosts % request.pipeline == 0:
        starts += places.wound(hosts // request.pipeline)
    return places.hosts_of(places.best(starts, lines))


def _apart(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """At how many levels two hosts are in different domains."""
    return sum(1 for a, b in zip(one, other, strict=True) if a != b)


def _lines(request: Request, hosts: int) -> list[tuple[int, int]]:
    """(hosts in a line, distance from one to the next) of the lines that exchange something."""
    found: list[tuple[int, int]] = []
    experts = request.tensor * request.expert * hosts // request.gpus
    if request.expert > 1 and experts > 1 and hosts % experts == 0:
        found.append((experts, 1))
    if request.pipeline > 1 and hosts % request.pipeline == 0:
        stage = hosts // request.pipeline
        found += [(stage, 1), (request.pipeline, stage)]
    return found


def _laid_out(places: "_Places", length: int, stride: int) -> Iterator[list[int]]:
    """Orders whose lines are filled with as few domains as can be."""
    hosts = len(places.labels)
    for level in range(places.depth):
        sequence = filled(places.labels, places.groups(level), length)
        if stride == 1:
            yield sequence
        else:  # line after line, each a row through all stages
            order = [0] * hosts
            for at, label in enumerate(sequence):
                row, stage = divmod(at, length)
                order[stage * stride + row] = label
            yield order


class _Places:
    """Which domains there are, how far apart, and what positions exchange."""

    def __init__(self, domains: Sequence[tuple[str, ...]], edges: Edges) -> None:
        different = list(dict.fromkeys(domains))
        numbers = {domain: number for number, domain in enumerate(different)}
        self._domains = different
        self.depth = len(different[0])
        self.labels = [numbers[domain] for domain in domains]
        """The domain of each host, in fabric order."""
        self._apart = [[_apart(one, other) for other in different] for one in different]
        self._near: list[list[tuple[int, float]]] = [[] for _ in domains]
        """By position: (position, what it exchanges with that)."""
        for (one, other), weight in edges.items():
            self._near[one].append((other, weight))
            self._near[other].append((one, weight))
        self._edges = edges
        self._steps = ORDER_STEPS

    def groups(self, level: int) -> list[int]:
        """By domain: a number that is equal for those inside one of this level."""
        seen: dict[str, int] = {}
        return [seen.setdefault(domain[level], len(seen)) for domain in self._domains]

    def cost(self, order: Sequence[int]) -> float:
        """What goes across domains."""
        apart = self._apart
        return sum(weight * apart[order[one]][order[other]] for (one, other), weight in self._edges.items())

    def wound(self, stage: int) -> list[list[int]]:
        """Of the orders that run through few domains one after the other, the best; none where domains are many."""
        some = list(islice(wound(self.labels, stage), WOUND_STEPS // max(1, len(self._edges))))
        return [min(some, key=self.cost)] if some else []

    def hosts_of(self, order: Sequence[int]) -> list[int]:
        """The hosts of a sequence of domains, those of one domain as they come."""
        left: dict[int, list[int]] = {}
        for host in range(len(self.labels) - 1, -1, -1):
            left.setdefault(self.labels[host], []).append(host)
        return [left[label].pop() for label in order]

    def best(self, starts: Sequence[Sequence[int]], lines: Sequence[tuple[int, int]]) -> list[int]:
        """The best start after swaps; then, with some of the steps that are left, what becomes of the others, and of
        the best one after a few random swaps, again and again."""
        ranked = sorted(starts, key=self.cost)  # the first of equals: the fabric's own
        found = list(ranked[0])
        self.improve(found, lines)
        least = self.cost(found)
        self._steps = min(self._steps, AGAIN_STEPS)
        here, others, number = found, iter(ranked[1:]), 1
        while self._steps > 0 and least > NEAR:
            other = next(others, None)
            order = list(here if other is None else other)
            for _ in range(0 if other is not None else 2 + number % 4):
                number = number * 1_103_515_245 + 12_345 & (1 << 31) - 1  # the same swaps every time
                one, two = number % len(order), (number >> 11) % len(order)
                order[one], order[two] = order[two], order[one]
            self.improve(order, lines)
            self._steps -= len(self._edges)
            cost = self.cost(order)
            if cost < least - NEAR:
                found = here = order
                least = cost
            elif other is None and cost < least + NEAR:  # as good, and farther from where it began
                here = order
        return found

    def improve(self, order: list[int], lines: Sequence[tuple[int, int]]) -> None:
        """Swaps while that helps, or until the steps are spent."""
        while self._steps > 0:
            if not (self._swapped_hosts(order) or self._swapped_lines(order, lines)):
                return

    def _of(self, order: Sequence[int], at: int, label: int) -> float:
        """What one position sends across domains if it were in this one."""
        row = self._apart[label]
        self._steps -= len(self._near[at])
        return sum(weight * row[order[other]] for other, weight in self._near[at])

    def _swapped_hosts(self, order: list[int]) -> bool:
        """Swaps pairs of hosts: each with the one in a domain of its neighbours that gains the most by it."""
        is_better = False
        places: dict[int, set[int]] = {}
        for at, label in enumerate(order):
            places.setdefault(label, set()).add(at)
        for at in range(len(order)):
            if self._steps <= 0:
                break
            here = order[at]
            now = self._of(order, at, here)
            if now == 0:
                continue
            best, swap = NEAR, -1
            for label in sorted({order[other] for other, _ in self._near[at]} - {here}):
                gain = now - self._of(order, at, label)
                if gain <= -now:
                    continue
                for other in sorted(places[label]):
                    found = gain + self._of(order, other, label) - self._of(order, other, here)
                    found -= 2 * self._apart[here][label] * self._between(at, other)
                    if found > best:
                        best, swap = found, other
                    if self._steps <= 0:
                        break
            if swap >= 0:
                label = order[swap]
                places[here].remove(at)
                places[label].remove(swap)
                places[here].add(swap)
                places[label].add(at)
                order[at], order[swap] = label, here
                is_better = True
        return is_better

    def _between(self, one: int, other: int) -> float:
        return self._edges.get((one, other) if one < other else (other, one), 0.0)

    def _swapped_lines(self, order: list[int], lines: Sequence[tuple[int, int]]) -> bool:
        """Swaps pairs of whole lines, and turns lines round."""
        is_better = False
        for length, stride in lines:
            rows = list(_rows(len(order), length, stride))
            for number, row in enumerate(rows):
                for other in rows[number:]:
                    if self._steps <= 0:
                        return is_better
                    is_better = self._tried(order, row, other) or is_better
        return is_better

    def _tried(self, order: list[int], row: Sequence[int], other: Sequence[int]) -> bool:
        if row is other:
            after = [order[at] for at in reversed(row)]
            moved = dict(zip(row, after, strict=True))
        else:
            moved = {a: order[b] for a, b in zip(row, other, strict=True)}
            moved.update({b: order[a] for a, b in zip(row, other, strict=True)})
        self._steps -= len(moved)
        if all(order[at] == label for at, label in moved.items()):
            return False
        before = self._sent(order, moved)
        old = {at: order[at] for at in moved}
        for at, label in moved.items():
            order[at] = label
        if self._sent(order, moved) < before - NEAR:
            return True
        for at, label in old.items():
            order[at] = label
        return False

    def _sent(self, order: Sequence[int], some: Mapping[int, int]) -> float:
        """What some positions send across domains; between two of them it counts once."""
        total = 0.0
        for at in some:
            row = self._apart[order[at]]
            self._steps -= len(self._near[at])
            for other, weight in self._near[at]:
                if other > at or other not in some:
                    total += weight * row[order[other]]
        return total


def _rows(hosts: int, length: int, stride: int) -> Iterator[Sequence[int]]:
    if stride == 1:
        for first in range(0, hosts, length):
            yield range(first, first + length)
    else:
        for first in range(stride):
            yield range(first, hosts, stride)
