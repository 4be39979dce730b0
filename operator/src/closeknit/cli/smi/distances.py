"""PCIe levels between GPUs whose cell shows their NVLinks instead: as far as the rest of the table tells them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from closeknit.api.nodetopology import Confidence
from closeknit.cli.smi.matrix import SmiTable
from closeknit.machine.checks import ITSELF, LEVELS

_RANK = {level: rank for rank, level in enumerate(LEVELS)}
_SWITCHES, _SAME_NUMA_NODE, _FARTHEST = _RANK["PXB"], _RANK["NODE"], _RANK["SYS"]


@dataclass(frozen=True, slots=True)
class Distances:
    """Rows of PCIe levels between the GPUs, none where nothing tells any; Low where some may be nearer, and
    where what is printed is no tree."""

    rows: tuple[tuple[str, ...], ...]
    confidence: Confidence | None


def distances(table: SmiTable) -> Distances:
    """The levels as printed, and those of an NVLink's cell by what is printed around it.

    PCIe is a tree: of the three levels between three devices the two farther ones are equal. So a third device that is
    nearer to one GPU than to the other tells how far they are from each other, and devices from one to the other tell
    how far they are at most. GPUs of two NUMA nodes are SYS from each other by what the word means, those of one node
    at most NODE.
    """
    count = table.gpu_count
    if count < 2:
        return Distances(((ITSELF,),) * count, None)
    pairs = [(a, b) for a in range(count) for b in range(a)]
    is_any_printed = any(table.cells[a][b] in _RANK for a, b in pairs)
    if not is_any_printed and not all(_thirds(table, a, b) for a, b in pairs):
        return Distances((), None)
    known = _known(table, [(a, b) for a, b in pairs if table.cells[a][b] not in _RANK])
    most = _at_most(table, known)
    rows = [[ITSELF if a == b else LEVELS[known.get((a, b), most[a][b])] for b in range(count)] for a in range(count)]
    is_sure = _is_tree(known, count, len(table.names)) and all(p in known or most[p[0]][p[1]] == 0 for p in pairs)
    return Distances(tuple(map(tuple, rows)), Confidence.HIGH if is_sure else Confidence.LOW)


def _is_tree(known: Mapping[tuple[int, int], int], gpus: int, size: int) -> bool:
    """Whether of each two GPUs and a third device the two farther levels are equal, as in every tree. PIX and PXB are
    one level here: the words tell how many switches are between two devices, and not which of these they share."""
    tiers = {pair: max(rank, _SWITCHES) for pair, rank in known.items()}
    for a, b in combinations(range(gpus), 2):
        for c in range(b + 1, size) if (a, b) in tiers else ():
            if (a, c) in tiers and (b, c) in tiers:
                _, middle, farthest = sorted((tiers[a, b], tiers[a, c], tiers[b, c]))
                if middle != farthest:
                    return False
    return True


def _known(table: SmiTable, hidden: Sequence[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """What is printed, and what follows from it for sure of hidden ones: (a, b) -> position in LEVELS, in both
    orders."""
    size = len(table.names)
    known = {(a, b): _RANK[word] for a, row in enumerate(table.cells) for b, word in enumerate(row) if word in _RANK}
    for a, b in hidden:
        numa = {_numa(table, a), _numa(table, b)}
        if len(numa) == 2 and None not in numa and not any(rank < _FARTHEST for rank in _thirds(table, a, b)):
            known[a, b] = known[b, a] = _FARTHEST
    while True:
        found = {
            (a, b): max(known[a, c], known[b, c])
            for a, b in hidden
            for c in range(size)
            if (a, b) not in known and (a, c) in known and (b, c) in known and known[a, c] != known[b, c]
        }
        if not found:
            return known
        for (a, b), rank in found.items():
            known[a, b] = known[b, a] = rank


def _at_most(table: SmiTable, known: dict[tuple[int, int], int]) -> list[list[int]]:
    """How far any two devices are at most: the nearest of all ways from one to the other, each as far as its farthest
    step."""
    size = len(table.names)
    most = [[_FARTHEST] * size for _ in range(size)]
    for a in range(table.gpu_count):
        for b in range(table.gpu_count):
            if (node := _numa(table, a)) is not None and node == _numa(table, b):
                most[a][b] = _SAME_NUMA_NODE
    for (a, b), rank in known.items():
        most[a][b] = rank
    for c in range(size):
        for a in range(size):
            for b in range(size):
                most[a][b] = min(most[a][b], max(most[a][c], most[c][b]))
    return most


def _thirds(table: SmiTable, a: int, b: int) -> list[int]:
    """By every third device that is printed how far two are at most: positions in LEVELS."""
    pairs = zip(table.cells[a], table.cells[b], strict=True)
    return [max(_RANK[to_a], _RANK[to_b]) for to_a, to_b in pairs if to_a in _RANK and to_b in _RANK]


def _numa(table: SmiTable, gpu: int) -> int | None:
    """One node; None for a set."""
    return int(table.numa[gpu]) if table.numa[gpu].isascii() and table.numa[gpu].isdecimal() else None
