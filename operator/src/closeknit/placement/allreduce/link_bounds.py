"""What the links of a set's GPUs alone tell of it: of all sets of a machine at once, in tables by bit mask.

Sixteen GPUs have 65,535 sets. What one GPU shares with each of them are as many numbers, and they lie side by side in
one integer: whole integers are added, and of each two numbers the lesser is taken, for all sets at once. It takes 5 ms;
one set after the other takes half a second.
"""

from array import array
from collections.abc import Sequence
from math import ceil, inf
from struct import unpack

from closeknit.machine.graph import Machine
from closeknit.placement.allreduce import constants
from closeknit.placement.allreduce.hops import MAX_RINGS, PAIR
from closeknit.placement.allreduce.paths import UNIT

LANE = 16  # bits of a number in such an integer
# What a GPU shares with a set that it is not in: more than with any. Two GPUs share 36 links at most, sixteen 8,640.
ABSENT = (1 << LANE - 1) - 1


class LinkBounds:
    """By bit mask of positions; of a machine of at most sixteen GPUs."""

    def __init__(self, machine: Machine, link_gb_s: float, pcie_gb_s: Sequence[float]) -> None:
        """`link_gb_s`: of one NVLink; `pcie_gb_s`: of each GPU."""
        shared = [_shared(machine, position) for position in range(len(pcie_gb_s))]
        self.ends = _numbers(_ends(machine, shared), len(shared))
        """Ends of NVLinks inside a set; of a switched machine those of its GPUs that lead to switches."""
        members = [links | _without(position, len(shared)) for position, links in enumerate(shared)]
        self.least = _numbers(_least(members, len(shared)), len(shared))
        """As many of one GPU, of the set's that has the fewest."""
        self.sent_gb_s = self._sent(members, link_gb_s, pcie_gb_s)
        """What the tightest GPU of a set can send at all; infinite for one alone."""

    def _sent(self, members: Sequence[int], link_gb_s: float, pcie_gb_s: Sequence[float]) -> list[float]:
        columns: list[list[float]] = []
        for pcie in set(pcie_gb_s):
            of_these = [each for each, its in zip(members, pcie_gb_s, strict=True) if its == pcie]
            least = _numbers(_least(of_these, len(members)), len(members))
            gb_s = {links: inf if links == ABSENT else links * link_gb_s + pcie for links in set(least)}
            columns.append([gb_s[links] for links in least])
        sent = columns[0] if len(columns) == 1 else list(map(min, *columns))
        for position in range(len(members)):
            sent[1 << position] = inf
        return sent


class Direct:
    """How many rings the NVLinks between two GPUs carry, of one kind of GPU."""

    def __init__(self, machine: Machine, sm: int) -> None:
        """`sm`: of each GPU, compute capability times ten."""
        link_mb_s = round(constants.nvlink_gb_s(sm) * UNIT)
        planned = [round(speed * UNIT) for speed in constants.ring_speeds(sm)]
        widest = max(map(max, machine.links)) * link_mb_s
        self._carried = [
            (mb_s, [[links * link_mb_s // mb_s for links in row] for row in machine.links])
            for mb_s in planned
            if mb_s <= widest
        ]

    def has_room(self, positions: Sequence[int], gb_s: float) -> bool:
        """Whether each GPU of a set could be part of rings of so much over these links alone, of one of NCCL's speeds;
        what hops.py counts is no less, for other ways only add to it."""
        for mb_s, carried in self._carried:
            rings = ceil(gb_s * UNIT / mb_s)
            rings += rings * mb_s / UNIT < gb_s  # rounded
            if rings <= MAX_RINGS and all(_has_room(carried[at], positions, rings) for at in positions):
                return True
        return False


def _has_room(carried: Sequence[int], positions: Sequence[int], rings: int) -> bool:
    """As hops.py has it: a ring is sent on and received on, and a neighbour is on one side of it only."""
    each = [carried[other] for other in positions]
    is_pair = len(positions) == PAIR
    return sum(each) >= rings and (is_pair or sum([min(rings, 2 * number) for number in each]) >= 2 * rings)


def _shared(machine: Machine, position: int) -> int:
    """The links of a GPU to each set, whether it is in it or not."""
    count = len(machine.gpus)
    if machine.switched:
        return machine.switch_links[position] * _ones(count)
    lanes = 0
    for other, links in enumerate(machine.links[position]):  # the sets without that one are known, now those with it
        lanes |= lanes + links * _ones(other) << (LANE << other)
    return lanes


def _ends(machine: Machine, shared: Sequence[int]) -> int:
    lanes = 0
    for position, links in enumerate(shared):
        own = links & (1 << (LANE << position)) - 1  # with the sets of lower GPUs
        lanes |= lanes + (own if machine.switched else 2 * own) << (LANE << position)
    return lanes


def _without(position: int, count: int) -> int:
    """ABSENT for each set without a GPU."""
    lanes = ABSENT * _ones(position)
    for other in range(position + 1, count):
        lanes |= lanes << (LANE << other)
    return lanes


def _least(columns: Sequence[int], count: int) -> int:
    """Of each set the least of its numbers."""
    ones = _ones(count)
    top = ones << LANE - 1
    least = columns[0]
    for each in columns[1:]:
        is_less = (least | top) - each & top  # or equal: where nothing was borrowed from the top bit
        least ^= (least ^ each) & is_less - (is_less >> LANE - 1)
    return least


def _ones(count: int) -> int:
    """One for each set of so many GPUs."""
    lanes = 1
    for other in range(count):
        lanes |= lanes << (LANE << other)
    return lanes


def _numbers(lanes: int, count: int) -> Sequence[int]:
    sets = 1 << count
    return array("H", unpack(f"<{sets}H", lanes.to_bytes(sets * LANE // 8, "little")))
