"""The search against every choice there is, on every cluster of up to three nodes with four GPUs each, up to symmetry.

Machines are of three kinds: half a DGX-1V, whose pairs differ and whose NICs do; four A100, all alike; four L40S
without NVLink. Of a kind all sets of free GPUs are there, of those that a symmetry of the machine makes one another the
first; of several nodes all combinations, over all ways of standing in blocks and racks. Names and order of nodes are
left out: they decide last. Jobs are of every size that is free, and one that is not; plain ones, and ones with one wish
each.

`make test` takes one in so many, `--long` takes all.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations_with_replacement, islice, permutations
from typing import Any, NamedTuple

import pytest

from closeknit.cluster.cluster import Cluster
from closeknit.machine.graph import Machine
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import place
from closeknit.placement.values.placement import NoFit, Placement
from closeknit.placement.values.request import Request
from scenarios.choices import SHAPES, best_merit, chosen_by, merit
from scenarios.clusters import cluster_of, node, wanted

GPUS = range(4)
LEVELS = ("block", "rack")
PLAIN: dict[str, Any] = {}
WISHES: list[dict[str, Any]] = [
    *({"nvlink": "Required", "tensor": tensor} for tensor in (1, 2, 4)),
    *({"tensor": tensor} for tensor in (2, 3, 4, 6, 8)),
    *({"nvlink": "Ignored", "tensor": tensor} for tensor in (2, 4)),
    *({"expert": expert} for expert in (2, 3, 4)),
    *({"tensor": 2, "expert": 2, "nvlink": nvlink} for nvlink in ("Required", "Preferred")),
    *({"fabric": {"required": level}} for level in (*LEVELS, "host")),
    *({"gpusPerNode": each} for each in (1, 2, 3, 4)),
    *({"minBusBandwidthGBps": gb_s} for gb_s in (5, 12, 40)),
]
TABLES = Tables()


class State(NamedTuple):
    """What a node is, but for its name and its place."""

    shape: str
    free: tuple[int, ...]
    rdma: bool


Layout = tuple[tuple[int, int], ...]  # block and rack of each node


def masks(machine: Machine) -> list[tuple[int, ...]]:
    """Sets of free GPUs, of those that are alike the first."""
    alike = [each for each in permutations(GPUS) if is_symmetry(machine, each)]
    found: dict[tuple[int, ...], tuple[int, ...]] = {}
    for mask in range(16):
        free = tuple(gpu for gpu in GPUS if mask >> gpu & 1)
        found.setdefault(min(tuple(sorted(each[gpu] for gpu in free)) for each in alike), free)
    return list(found.values())


def is_symmetry(machine: Machine, other: Sequence[int]) -> bool:
    """Whether the machine is the same with its GPUs renamed."""
    pairs = all(
        machine.links[a][b] == machine.links[other[a]][other[b]]
        and machine.pcie_levels[a][b] == machine.pcie_levels[other[a]][other[b]]
        for a in GPUS
        for b in GPUS
    )
    return pairs and all(nic.gpu_levels[a] == nic.gpu_levels[other[a]] for nic in machine.nics for a in GPUS)


@cache
def states(*, with_sockets: bool) -> tuple[State, ...]:
    """Every node that there is; `with_sockets`: also with NICs that no Pod gets, and with nothing free."""
    return tuple(
        State(shape, free, rdma)
        for shape, machine in SHAPES.items()
        for rdma in ((True, False) if machine.nics and with_sockets else (True,))
        for free in masks(machine)
        if free or with_sockets
    )


def layouts(count: int) -> list[Layout]:
    """Every way in which so many nodes share blocks and racks."""
    found: list[Layout] = [()]
    for _ in range(count):
        found = [
            (*before, (block, rack))
            for before in found
            for block in range(1 + max((block for block, _ in before), default=-1) + 1)
            for rack in range(1 + max((rack for there, rack in before if there == block), default=-1) + 1)
        ]
    return found


def cluster(nodes: Sequence[State], layout: Layout) -> Cluster:
    return cluster_of(
        *(
            node(
                f"gpu-{number}",
                SHAPES[state.shape],
                gpus=" ".join(str(gpu) if gpu in state.free else "a" for gpu in GPUS),
                path=(f"b{block}", f"r{rack}"),
                rdma=state.rdma,
            )
            for number, (state, (block, rack)) in enumerate(zip(nodes, layout, strict=True))
        ),
        levels=LEVELS,
    )


def job(gpus: int, wish: dict[str, Any]) -> Request | None:
    """The request; None where the wish does not divide it."""
    tensor, expert, each = wish.get("tensor", 1), wish.get("expert", 1), wish.get("gpusPerNode", 1)
    if gpus % (tensor * expert) or gpus % each:
        return None
    topology = {key: value for key, value in wish.items() if key not in ("tensor", "expert")}
    return wanted(gpus=gpus, parallelism={"tensor": tensor, "expert": expert}, topology=topology)


Case = tuple[Sequence[State], Layout, list[dict[str, Any]]]


def cases(count: int) -> Iterator[Case]:
    """All clusters of so many nodes, each with what its jobs wish; of three nodes each combination has one layout for
    all wishes, in turn, and all layouts for plain jobs."""
    every = layouts(count)
    combinations = combinations_with_replacement(states(with_sockets=count < 3), count)
    for number, nodes in enumerate(combinations):
        for place_number, layout in enumerate(every):
            has_wishes = count < 3 or place_number == number % len(every)
            yield nodes, layout, [PLAIN, *(WISHES if has_wishes else ())]


def fault(there: Cluster, request: Request) -> str | None:
    """What is wrong with a decision."""
    best = best_merit(there, request)
    decision = place(there, request, TABLES)
    if best is None:
        return None if isinstance(decision, NoFit) else "placed where nothing fits"
    if not isinstance(decision, Placement):
        return f"refused: {decision.message}"
    taken = merit(there, request, chosen_by(decision, there))
    return None if taken is not None and taken[:-2] == best[:-2] else f"took {taken}, best {best}"


@pytest.mark.parametrize(
    ("nodes", "stride"),
    [
        pytest.param(1, 1, id="one node"),
        pytest.param(2, 29, id="two nodes"),
        pytest.param(3, 311, id="three nodes"),
        pytest.param(2, 1, id="two nodes, all", marks=pytest.mark.long),
        pytest.param(3, 1, id="three nodes, all", marks=pytest.mark.long),
    ],
)
def test_no_choice_has_more_merit_on_any_cluster(nodes: int, stride: int) -> None:
    decided = 0
    for state, layout, wishes in islice(cases(nodes), 0, None, stride):
        there = cluster(state, layout)
        free = sum(len(each.free) for each in state)
        for wish in wishes:
            for gpus in range(1, free + 2):
                request = job(gpus, wish)
                if request is not None:
                    assert (wrong := fault(there, request)) is None, (state, layout, wish, gpus, wrong)
                    decided += 1
    assert decided > 200


def test_symmetries_are_those_of_the_machines() -> None:
    assert [len(masks(machine)) for machine in SHAPES.values()] == [10, 5, 6]
    assert [len(layouts(count)) for count in (1, 2, 3)] == [1, 3, 12]
