"""The ways onwards from each GPU of a set, and how many rings they have room for at most."""

from typing import NamedTuple

from closeknit.placement.allreduce.constants import INTEL_HOST_BRIDGE_FACTOR
from closeknit.placement.allreduce.paths import Paths, PathType

MAX_RINGS = 32  # NCCL's limit of channels before it doubles them
PAIR = 2  # GPUs, each the only neighbour of the other


class Hop(NamedTuple):
    """One way onwards from a GPU."""

    to: int
    links: tuple[int, ...]
    load: int
    """MB/s that one ring takes of each link."""


class _Way(NamedTuple):
    """A path to another GPU of the set."""

    narrowness: int
    """MB/s of its tightest link, negative, so that the fastest way comes first."""
    length: int
    """How many links it has: of equally fast ways the shortest comes first."""
    to: int
    links: tuple[int, ...]
    type: PathType
    is_slowed: bool
    """Whether an Intel host bridge is on it."""


class _Link(NamedTuple):
    """The first link that a GPU sends on, or the last one that it receives on."""

    capacity: int
    width: int
    """Of the widest way over it that no Intel host bridge slows; 0 where there is none."""
    slowed_width: int
    """Of the widest that one slows."""
    onwards: tuple[int, ...]
    """What carries the ways that nothing slows beyond this link: the capacity of the tightest link of each, once; empty
    where one of them ends with it."""

    def room(self, plain: int, slowed: int) -> int:
        """How many rings it carries at most, of these loads."""
        rings = 0
        if self.width >= plain:
            rings = self.capacity // plain
            if self.onwards:
                rings = min(rings, sum([capacity // plain for capacity in self.onwards]))
        if self.slowed_width >= slowed:
            rings += (self.capacity - rings * plain) // slowed
        return rings


_NO_LINK = _Link(0, 0, 0, ())
Both = tuple[_Link, _Link]
"""To send and to receive on."""


class _Room(NamedTuple):
    """What one GPU can send and receive."""

    own: tuple[Both, ...]
    """To and from one neighbour alone."""
    mates: tuple[Both, ...]
    """To and from one neighbour, and to and from others through a host bridge that slows."""
    sending: tuple[_Link, ...]
    """To several neighbours."""
    receiving: tuple[_Link, ...]

    def rings(self, plain: int, slowed: int, most: int, *, is_pair: bool) -> int:
        """How many rings of these loads go through the GPU, `most` at most: each is sent on and received on, and, but
        for a set of two, a neighbour is on one side of it only."""
        sent = sum([link.room(plain, slowed) for link in self.sending])
        received = sum([link.room(plain, slowed) for link in self.receiving])
        shared, neighbours = sent + received, []
        for out, into in self.own:
            to, back = out.room(plain, slowed), into.room(plain, slowed)
            sent += to
            received += back
            neighbours.append(to + back)
        for out, into in self.mates:
            sent += out.room(plain, slowed)
            received += into.room(plain, slowed)
        most = min(most, sent, received)
        while most and not is_pair:
            sides = shared + sum([min(most, each) for each in neighbours])
            for out, into in self.mates:
                mate = min(most, sum([link.capacity // plain for link in (out, into) if link.width >= plain]))
                left = sum([link.capacity for link in (out, into) if link.slowed_width >= slowed]) - mate * plain
                sides += mate + max(0, left) // slowed
            if sides >= 2 * most:
                break
            most -= 1
        return most


_Links = dict[int, list[tuple[int, _Way]]]
"""Number of a link of one GPU -> the neighbours that it leads to, and the ways over it."""


class Hops:
    """What all searches of one set have in common."""

    def __init__(self, paths: Paths) -> None:
        """Nothing is searched yet."""
        self._capacity = paths.capacity
        ways = [
            [
                path
                and _Way(
                    -min([paths.capacity[link] for link in path.links]),
                    len(path.links),
                    to,
                    path.links,
                    path.type,
                    paths.intel and path.type is PathType.PHB,
                )
                for to, path in enumerate(row)
            ]
            for row in paths.between
        ]
        self._rows = [sorted([way for way in row if way]) for row in ways]
        self.fastest = -min(row[0].narrowness for row in self._rows)
        """MB/s of the fastest path."""
        self.types = sorted({way.type for row in self._rows for way in row})
        """Of paths, nearest first."""
        self._over_pcie = max(
            [-way.narrowness for row in self._rows for way in row if way.type > PathType.NVB], default=0
        )
        """MB/s of the fastest path that is not over NVLink alone."""
        self._received = [
            [(start, way) for start, row in enumerate(ways) if (way := row[gpu])] for gpu in range(len(ways))
        ]
        self._tightest_first = sorted(
            range(len(self._rows)),
            key=lambda gpu: sum([-way.narrowness for way in self._rows[gpu] if way.type is self.types[0]]),
        )
        self._rooms: dict[tuple[int, PathType], _Room] = {}
        self._reaches: dict[PathType, int] = {}

    def limit(self, speed: int, farthest: PathType, above: int = 0) -> int:
        """No more rings of this speed than the tightest GPU has room for; as soon as they carry no more than `above`
        MB/s together, whatever is known of them by then."""
        if farthest not in self._reaches:
            fastest = [max([-way.narrowness for way in row if way.type <= farthest], default=0) for row in self._rows]
            self._reaches[farthest] = min(fastest)
        if speed > self._reaches[farthest]:
            return 0
        if farthest > PathType.NVB and speed > self._over_pcie:
            farthest = PathType.NVB  # the others share no link with these
        plain, slowed = loads(speed)
        least = MAX_RINGS
        for gpu in self._tightest_first:
            room = self._room(gpu, farthest)
            least = room.rings(plain, slowed, least, is_pair=len(self._rows) == PAIR)
            if least * speed <= above:
                break
        return least

    def steps(self, speed: int, farthest: PathType) -> list[list[Hop]]:
        """For each GPU the ways onwards that can carry a ring of this speed at all: fastest first."""
        plain, slowed = loads(speed)
        return [
            [
                Hop(to, links, load)
                for narrowness, _, to, links, kind, is_slowed in row
                if kind <= farthest and -narrowness >= (load := slowed if is_slowed else plain)
            ]
            for row in self._rows
        ]

    def _room(self, gpu: int, farthest: PathType) -> _Room:
        found = self._rooms.get((gpu, farthest))
        if found is None:
            sent, received = _Links(), _Links()
            for way in self._rows[gpu]:
                if way.type <= farthest:
                    sent.setdefault(way.links[0], []).append((way.to, way))
            for start, way in self._received[gpu]:
                if way.type <= farthest:
                    received.setdefault(way.links[-1], []).append((start, way))
            found = self._rooms[gpu, farthest] = self._room_of(sent, received)
        return found

    def _room_of(self, sent: _Links, received: _Links) -> _Room:
        own: dict[int, list[_Link]] = {}
        mates: dict[int, list[_Link]] = {}
        shared: tuple[list[_Link], list[_Link]] = ([], [])
        for side, links in enumerate((sent, received)):
            for number, ways in links.items():
                link = self._link(number, [way for _, way in ways])
                plain = [neighbour for neighbour, way in ways if not way.is_slowed]
                if len(ways) == 1:
                    own.setdefault(ways[0][0], [_NO_LINK, _NO_LINK])[side] = link
                elif len(plain) == 1:
                    mates.setdefault(plain[0], [_NO_LINK, _NO_LINK])[side] = link
                else:
                    shared[side].append(link)
        return _Room(_both(own), _both(mates), *map(tuple, shared))

    def _link(self, number: int, ways: list[_Way]) -> _Link:
        capacity, width, slowed_width, tightest = self._capacity, 0, 0, set[int]()
        is_end = False
        for way in ways:
            if way.is_slowed:
                slowed_width = max(slowed_width, -way.narrowness)
                continue
            width = max(width, -way.narrowness)
            if way.length == 1:
                is_end = True
            else:
                tightest.add(min([link for link in way.links if link != number], key=capacity.__getitem__))
        onwards = () if is_end else tuple([capacity[link] for link in tightest])
        return _Link(capacity[number], width, slowed_width, onwards)


def _both(links: dict[int, list[_Link]]) -> tuple[Both, ...]:
    return tuple((out, into) for out, into in links.values())


def loads(speed: int) -> tuple[int, int]:
    """MB/s that a ring of this speed takes of a link, and of one behind an Intel host bridge."""
    times, parts = INTEL_HOST_BRIDGE_FACTOR
    return speed, speed * times // parts


def is_closed(steps: list[list[Hop]]) -> bool:
    """Whether there may be any ring through all GPUs: a ring still holds together without any one of them."""
    near = [0] * len(steps)
    for start, onwards in enumerate(steps):
        for step in onwards:
            near[start] |= 1 << step.to
            near[step.to] |= 1 << start
    every = (1 << len(steps)) - 1
    return all(_is_joined(near, every & ~(1 << left_out)) for left_out in range(len(steps)))


def _is_joined(near: list[int], among: int) -> bool:
    reached, new = 0, among & -among
    while new:
        reached |= new
        onwards = 0
        while new:
            onwards |= near[(new & -new).bit_length() - 1]
            new &= new - 1
        new = onwards & among & ~reached
    return reached == among
