"""Expert groups inside NVLink islands of one node, where this costs no bandwidth."""

from collections.abc import Sequence

import pytest

from closeknit.machine.graph import Machine
from closeknit.machine.islands import joined
from closeknit.placement.gang.cache import Tables
from closeknit.placement.gpusets.experts import NO_EXPERTS, Experts, experts_on_nodes
from closeknit.placement.gpusets.masks import mask_of, positions_of
from closeknit.placement.gpusets.set_value import ANY, SetCriteria
from closeknit.placement.place import place
from closeknit.placement.values.placement import Placement
from scenarios.clusters import cluster_of, graph, node, wanted

TABLES = Tables()  # which change no answer


@pytest.mark.parametrize(
    ("asked", "torn"),
    [
        pytest.param(Experts(1, 2), 1, id="0 1, 2 4 and 6 7"),
        pytest.param(Experts(2, 3), 2, id="0 2 6 and 1 4 7"),
        pytest.param(Experts(1, 6), 1, id="all six"),
    ],
)
def test_expert_groups_are_so_many_ranks_that_are_tensor_apart(asked: Experts, torn: int) -> None:
    assert asked.torn(graph("pairs8"), (0, 1, 2, 4, 6, 7)) == torn


@pytest.mark.parametrize(
    ("topology", "kept", "counts"),
    [
        pytest.param({}, 4, True, id="they are whole on their nodes"),
        pytest.param({}, 2, False, id="tensor groups alone are"),
        pytest.param({"nvlink": "Ignored"}, 4, False, id="NVLink is ignored"),
    ],
)
def test_islands_of_expert_groups_count_where(topology: dict[str, str], kept: int, *, counts: bool) -> None:
    request = wanted(gpus=8, parallelism={"tensor": 2, "expert": 2}, topology=topology)
    assert experts_on_nodes(request, kept) == (Experts(2, 2) if counts else NO_EXPERTS)


def torn_groups(machine: Machine, ranks: Sequence[int], tensor: int, expert: int) -> int:
    """Counted rank by rank: expert groups that NVLinks among their own GPUs do not join."""
    torn = 0
    for block in range(len(ranks) // (tensor * expert)):
        for offset in range(tensor):
            group = [ranks[block * tensor * expert + offset + tensor * member] for member in range(expert)]
            reached = {group[0]}
            for _ in group:
                reached |= {gpu for gpu in group if any(joined(machine, gpu, other) for other in reached)}
            torn += len(reached) < expert
    return torn


@pytest.mark.parametrize("name", ["pairs8", "dgx-1v", "dgx-1p"])
@pytest.mark.parametrize(("gpus", "tensor", "expert"), [(4, 1, 2), (6, 1, 2), (6, 1, 3), (4, 2, 2), (6, 3, 2)])
def test_of_the_fastest_sets_the_one_that_tears_the_fewest_is_taken(
    name: str, gpus: int, tensor: int, expert: int
) -> None:
    """Of every set out of every free ones, by bandwidth of the slowest tensor group, of all of it, and what trees could
    use."""
    machine = graph(name)
    request = wanted(gpus=gpus, parallelism={"tensor": tensor, "expert": expert})
    ask = SetCriteria(gpus, block=tensor, alone=True)
    every = [mask for mask in range(256) if mask.bit_count() == gpus]
    torn = {mask: torn_groups(machine, machine.in_bus_order(positions_of(mask)), tensor, expert) for mask in every}
    for free in range(256):
        words = " ".join(str(index) if free >> index & 1 else "a" for index in range(8))
        there = cluster_of(node("gpu-1", machine, gpus=words))
        decision = place(there, request, TABLES)
        assert isinstance(decision, Placement) == (gpus <= free.bit_count())
        if isinstance(decision, Placement):
            ground = TABLES.ground(there, request)
            sets = ground.offers[min(ground.counts)].terms.sets
            worth = {mask: sets.facts.value[mask, ask] or ANY for mask in every if mask & free == mask}
            best = max(worth.values())
            taken = mask_of(machine.positions(decision.shares[0].gpus))
            assert worth[taken] == best
            assert torn[taken] == min(torn[mask] for mask, value in worth.items() if value == best)


def test_a_gang_tears_as_few_as_its_nodes_allow() -> None:
    """Two nodes could give whole pairs; the third, fuller one, which would be taken first, tears a group."""
    pairs = graph("pairs8")
    held = {"gpu-1": "0 1 2 a 4 a a a", "gpu-2": "0 1 a a 4 5 a a", "gpu-3": "a a 2 3 4 5 a a"}
    there = cluster_of(*(node(name, pairs, gpus=words) for name, words in held.items()))
    plain = place(there, wanted(gpus=8), TABLES)
    experts = place(there, wanted(gpus=8, parallelism={"expert": 2}), TABLES)
    assert isinstance(plain, Placement)
    assert isinstance(experts, Placement)
    assert experts.predicted_bus_bandwidth_gb_s == plain.predicted_bus_bandwidth_gb_s
    assert [(share.node, share.gpus) for share in experts.shares] == [("gpu-2", (0, 1, 4, 5)), ("gpu-3", (2, 3, 4, 5))]
