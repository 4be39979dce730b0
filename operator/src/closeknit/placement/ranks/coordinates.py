"""Which rank does what: the coordinates of Megatron's default order, tp-cp-ep-dp-pp, and the order of nodes."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from closeknit.placement.values.request import Request


class Coordinates(NamedTuple):
    """Where one rank stands on each axis of the job's parallelism."""

    tensor: int
    context: int
    pipeline: int
    data: int
    expert: int
    """Of a second view of the same ranks, which splits context x data into experts and the rest."""


def coordinates(rank: int, request: Request) -> Coordinates:
    """The coordinates of a global rank; neighbours in rank differ first in tensor, last in pipeline.

    As Megatron-Core's RankGenerator counts them with one expert for the dense axes.
    """
    data = request.gpus // (request.tensor * request.context * request.pipeline)
    rest, tensor = divmod(rank, request.tensor)
    expert = rest % request.expert
    rest, context = divmod(rest, request.context)
    pipeline, replica = divmod(rest, data)
    return Coordinates(tensor, context, pipeline, replica, expert)


def in_fabric_order(shares: Iterable[tuple[Sequence[str], str, int]]) -> list[str]:
    """Node names so that consecutive ranks are near, from (domains outermost first, node, GPUs).

    Nodes of one domain follow each other at every level; of domains, and of nodes, the one with more ranks comes
    first, then names decide.
    """
    together: dict[Sequence[str], list[tuple[int, str]]] = {}
    for domains, name, count in shares:
        together.setdefault(domains, []).append((-count, name))
    ranks: dict[Sequence[str], int] = {}
    for domains, nodes in together.items():
        count = sum(count for count, _ in nodes)
        for depth in range(1, len(domains) + 1):
            ranks[domains[:depth]] = ranks.get(domains[:depth], 0) + count

    def key(domains: Sequence[str]) -> list[tuple[int, str]]:
        return [(ranks[domains[: depth + 1]], step) for depth, step in enumerate(domains)]

    return [name for domains in sorted(together, key=key) for _, name in sorted(together[domains])]
