"""What the ranks of a gang send between its hosts, by the axes of its parallelism, before anybody says where hosts are.

Host positions are numbered in rank order, with equally many ranks each. Gradients go round a ring of the hosts of each
data group, in rank order, as NCCL joins nodes; activations to the same place of the next stage; tokens from each expert
to each other. What of a tensor or context group leaves its host goes round a ring, too.
"""

from collections.abc import Iterator, Mapping
from itertools import combinations

from closeknit.placement.values.request import Request

# Relative bytes of a rank. A group that leaves its host sends for every layer, which is more than all else.
GROUP_TRAFFIC = 10.0

Edges = Mapping[tuple[int, int], float]
"""(position, later position) -> what goes between them, both ways."""


def between_hosts(request: Request, ranks_per_host: int) -> Edges:
    """What goes between the host positions of a gang of equal shares."""
    found: dict[tuple[int, int], float] = {}
    for ranks, weight in _rings(request):
        if weight:
            hosts = list(dict.fromkeys(rank // ranks_per_host for rank in ranks))
            for one, other in zip(hosts, [*hosts[1:], hosts[0]], strict=True):
                _add(found, one, other, weight)
    stage = request.gpus // request.pipeline
    if weight := request.traffic.pipeline:
        for rank in range(request.gpus - stage):
            _add(found, rank // ranks_per_host, (rank + stage) // ranks_per_host, weight)
    if request.expert > 1 and (weight := request.traffic.expert):
        for ranks in _expert_groups(request):
            number: dict[int, int] = {}
            for rank in ranks:
                number[rank // ranks_per_host] = number.get(rank // ranks_per_host, 0) + 1
            for one, other in combinations(number, 2):
                _add(found, one, other, 2 * weight * number[one] * number[other] / request.expert)
    return found


def _add(found: dict[tuple[int, int], float], one: int, other: int, weight: float) -> None:
    if one != other:
        key = (one, other) if one < other else (other, one)
        found[key] = found.get(key, 0.0) + weight


def _rings(request: Request) -> Iterator[tuple[range, float]]:
    """(ranks, relative bytes) of every group that goes round a ring. Gradients are summed over context, too."""
    tensor, stage = request.tensor, request.gpus // request.pipeline
    for first in range(0, request.gpus, stage):
        for place in range(tensor):
            yield range(first + place, first + stage, tensor), request.traffic.data
    if request.group > 1:
        for first in range(0, request.gpus, request.group):
            yield range(first, first + request.group), GROUP_TRAFFIC


def _expert_groups(request: Request) -> Iterator[range]:
    tensor, expert = request.tensor, request.expert
    for first in range(0, request.gpus, tensor * expert):
        for place in range(tensor):
            yield range(first + place, first + tensor * expert, tensor)
