"""The nodes of a very large gang as columns, so that a booking over 40,000 of them fits an object.

start   "gpu-"                           what every name begins with
names   ["a-:00001,00002,00003", ":7"]   what some names have in common after that, and what of each follows it
kind    "0*3,1"                          a position among the kinds, and how many nodes have it
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from closeknit.api.trainingjob_status import NodeKind, PackedNodes, runs


def packed(
    names: Sequence[str], kinds: Sequence[NodeKind], kind: Iterable[int], generations: Iterable[int]
) -> PackedNodes:
    """Nodes in columns, in rank order: their names, the position of each one's kind, and generations."""
    start = _start(min(names), max(names))
    rest = [name[len(start) :] for name in names]
    end = _end(rest)
    return PackedNodes(
        names=list(_prefixed([name.removesuffix(end) for name in rest])),
        start=start,
        end=end,
        kinds=list(kinds),
        kind=_run_lengths(kind),
        generation=_run_lengths(generations),
    )


def unpacked(nodes: PackedNodes) -> Iterator[tuple[str, NodeKind, int]]:
    """(name, kind, generation of its NodeTopology) of each node, in rank order."""
    names = (
        f"{nodes.start}{prefix}{part}{nodes.end}"
        for prefix, _, parts in (run.partition(":") for run in nodes.names)
        for part in parts.split(",")
    )
    yield from zip(names, map(nodes.kinds.__getitem__, _spread(nodes.kind)), _spread(nodes.generation), strict=True)


def _start(first: str, last: str) -> str:
    """The common beginning of some sorted names: that of the first and the last."""
    same = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return first[:same]


def _end(names: Sequence[str]) -> str:
    """The common end of every name from its first dot; empty where it differs."""
    ends = {name[len(name.partition(".")[0]) :] for name in names}
    return ends.pop() if len(ends) == 1 else ""


def _prefixed(names: Sequence[str]) -> Iterator[str]:
    def prefix(name: str) -> str:
        return name[: name.rfind("-", 0, len(name.partition(".")[0])) + 1]

    for start, run in groupby(names, prefix):
        yield f"{start}:{','.join(name[len(start) :] for name in run)}"


def _run_lengths(values: Iterable[int]) -> str:
    found = ((value, sum(1 for _ in same)) for value, same in groupby(values))
    return ",".join(str(value) if times == 1 else f"{value}*{times}" for value, times in found)


def _spread(text: str) -> Iterator[int]:
    for value, times in runs(text):
        for _ in range(times):
            yield value
