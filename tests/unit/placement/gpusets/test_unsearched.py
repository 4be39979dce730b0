"""Machines that are too dear to search: one set of each size, and no refusal where another set would do."""

import random
from itertools import combinations

import pytest

from closeknit.machine.graph import Machine, machine
from closeknit.machine.islands import islands
from closeknit.placement.allreduce.rings import rings
from closeknit.placement.gang.cache import Tables
from closeknit.placement.gpusets.masks import mask_of, positions_of
from closeknit.placement.gpusets.set_facts import SetFacts
from closeknit.placement.gpusets.set_value import ANY, Measure, SetCriteria
from closeknit.placement.gpusets.unsearched import UnsearchedSets
from closeknit.placement.place import place
from closeknit.placement.values.placement import Placement
from scenarios.clusters import cluster_of, node, wanted
from scenarios.machines import INTEL_2023, spec, tree


def linked(name: str, gpus: int, joined: list[tuple[int, int]]) -> Machine:
    """A machine of Hopper GPUs with links between some of them, and none through switches."""
    pairs = " ".join(f"{a}-{b}:2" for a, b in joined)
    halves, switches = [2 * gpu // gpus for gpu in range(gpus)], [gpu // 2 for gpu in range(gpus)]
    return machine(
        spec(count=gpus, product="P", capability="9.0", memory_gib=80, pairs=pairs, pcie=4, cpu=INTEL_2023,
             sockets=halves, levels=tree(halves, switches), tag=name)
    )  # fmt: skip


def quads(name: str, gpus: int) -> Machine:
    return linked(name, gpus, [(a, b) for a, b in combinations(range(gpus), 2) if a // 4 == b // 4])


@pytest.mark.parametrize("seed", range(40))
def test_a_set_that_keeps_to_islands_is_found_wherever_there_is_one(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - to be repeated
    gpus = rng.randint(3, 8)
    there = linked("a", gpus, [pair for pair in combinations(range(gpus), 2) if rng.random() < rng.choice((0.2, 0.5))])
    sets = UnsearchedSets(SetFacts(there, rings))
    pool = mask_of(gpu for gpu in range(gpus) if rng.random() < 0.9)
    for count in range(1, pool.bit_count() + 1):
        for block in (each for each in range(1, count + 1) if count % each == 0):
            ask = SetCriteria(count, block, joined=True)
            able = [each for each in combinations(positions_of(pool), count) if keeps(there, each, ask)]
            found = sets.choose(pool, pool, ask, ANY)
            assert (found is not None) == (sets.best(pool, ask, ANY, Measure.BUS) is not None) == bool(able)
            assert found is None or positions_of(found.mask) in able


def keeps(there: Machine, taken: tuple[int, ...], ask: SetCriteria) -> bool:
    ranks = there.in_bus_order(taken)
    block = ask.block if ask.block > 1 else ask.gpus
    return all(len(islands(there, ranks[at : at + block])) == 1 for at in range(0, len(ranks), block))


def test_a_gang_on_several_of_them_is_not_refused_for_the_lowest_gpus() -> None:
    there = cluster_of(node("a", quads("a", 8)), node("b", quads("b", 5)))
    found = place(there, wanted(gpus=9, parallelism={"tensor": 3}, topology={"nvlink": "Required"}), Tables())
    assert isinstance(found, Placement)
    assert [(share.node, share.gpus) for share in found.shares] == [("a", (0, 1, 2, 4, 5, 6)), ("b", (0, 1, 2))]
