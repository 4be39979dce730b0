"""PCIe levels between GPUs whose cell shows their NVLinks instead: as far as the rest of the table tells them."""

from collections.abc import Sequence
from dataclasses import dataclass

from closeknit.api.nodetopology import Confidence
from closeknit.cli.smi.table import SmiTable
from closeknit.machine.checks import ITSELF, LEVELS

_RANK = {level: rank for rank, level in enumerate(LEVELS)}


@dataclass(frozen=True, slots=True)
class Distances:
    """Rows of PCIe levels between the GPUs, none where one of them cannot be told; Low where one may be nearer."""

    rows: tuple[tuple[str, ...], ...]
    confidence: Confidence | None


def distances(table: SmiTable) -> Distances:
    """The levels as printed, and those of an NVLink's cell by what is printed around it.

    PCIe is a tree: of the three levels between three devices the two farther ones are equal. So a third device that is
    nearer to one GPU than to the other tells how far they are from each other; one as far from both tells how far they
    are at most, which is the level itself where that is the nearest there is.
    """
    count = table.gpu_count
    rows = [[ITSELF] * count for _ in range(count)]
    is_sure = True
    for a in range(count):
        for b in range(a):
            word = table.cells[a][b]
            if word not in _RANK:
                farthest = [max(pair) for pair in _thirds(table, a, b)]
                if not farthest:
                    return Distances((), None)
                word = LEVELS[min(farthest)]
                is_sure = is_sure and (word == LEVELS[0] or any(x != y for x, y in _thirds(table, a, b)))
            rows[a][b] = rows[b][a] = word
    return Distances(tuple(map(tuple, rows)), (Confidence.HIGH if is_sure else Confidence.LOW) if count > 1 else None)


def _thirds(table: SmiTable, a: int, b: int) -> Sequence[tuple[int, int]]:
    """Of every third device, how far it is from both: positions in LEVELS."""
    pairs = zip(table.cells[a], table.cells[b], strict=True)
    return [(_RANK[to_a], _RANK[to_b]) for to_a, to_b in pairs if to_a in _RANK and to_b in _RANK]
