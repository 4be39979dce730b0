"""Machines that are searched where a job asks: the answer of an exhaustive search, within a budget."""

from itertools import combinations
from typing import Any

import pytest

from closeknit.machine.graph import Machine
from closeknit.placement.allreduce.rings import rings
from closeknit.placement.gang.cache import Tables
from closeknit.placement.gpusets import search_cost
from closeknit.placement.gpusets.best_first import ASKED_NODES, BestFirstSets
from closeknit.placement.gpusets.exhaustive import ExhaustiveSets
from closeknit.placement.gpusets.set_facts import SetFacts
from closeknit.placement.gpusets.set_value import ANY, Measure, SetCriteria, Value, reaches
from closeknit.placement.place import place
from closeknit.placement.values.placement import Placement
from harness.called import calls_of
from scenarios.clusters import cluster_of, graph, node, wanted
from scenarios.irregular import irregular

ASKS = [
    SetCriteria(gpus, block=block, joined=joined, alone=True)
    for gpus in range(1, 6)
    for block in (1, 2)
    if gpus % block == 0
    for joined in (False, True)
]


FIRST_CALLS = 3_000_000  # 0.5 s: 2.9 million at the most of eight machines, and 5.2 where groups were asked every time


def without_fabric(real: Machine) -> Machine:
    """A machine of which one GPU is in no switch."""
    return Machine(**{**fields(real), "switch_links": (0, *real.switch_links[1:])})


def fields(real: Machine) -> dict[str, Any]:
    return {name: getattr(real, name) for name in real.__dataclass_fields__}


MACHINES = {
    "five any": irregular(2, 5),
    "six any": irregular(1, 6),
    "switched, one out": without_fabric(graph("a100x4")),
}


@pytest.mark.parametrize("name", MACHINES)
def test_every_question_has_the_answer_of_an_exhaustive_search(name: str) -> None:
    machine = MACHINES[name]
    every, asked = ExhaustiveSets(SetFacts(machine, rings)), BestFirstSets(SetFacts(machine, rings), 1)
    for pool in (every.facts.every, every.facts.every & 0b110111):
        for ask in (ask for ask in ASKS if ask.gpus <= pool.bit_count()):
            floor = ANY
            for by in (Measure.BLOCK, Measure.BUS, Measure.TREE):
                best = every.best(pool, ask, floor, by)
                assert asked.best(pool, ask, floor, by) == best
                floor = Value(*(best or 0.0 if part == by else each for part, each in enumerate(floor)))
            choice = asked.choose(pool, pool, ask, floor)
            assert (choice is None) == (every.choose(pool, pool, ask, floor) is None)
            if choice is not None:
                assert reaches(every.facts.value[choice.mask, ask], floor)
                assert choice.mask & ~pool == 0
                assert not choice.is_cut


@pytest.mark.parametrize("name", MACHINES)
def test_no_set_has_more_than_its_bound(name: str) -> None:
    asked = BestFirstSets(SetFacts(MACHINES[name], rings), 1)
    for gpus in range(2, len(asked.facts.machine.gpus) + 1):
        for positions in combinations(range(len(asked.facts.machine.gpus)), gpus):
            mask = sum(1 << position for position in positions)
            ask = SetCriteria(gpus, block=2 if gpus % 2 == 0 else 1, alone=True)
            value = asked.facts.value[mask, ask]
            assert value is not None
            assert asked.facts.room_gb_s[mask] >= value.bus_gb_s
            for by in Measure:
                assert asked._bounds([mask], ask, by)[0] >= value[by] or (by is Measure.BLOCK and ask.block == 1)


def test_sixteen_gpus_with_any_links_are_searched_whichever_are_free() -> None:
    machine, kept = irregular(0), Tables()
    for held in ((), (0, 2, 5)):
        words = " ".join("a" if index in held else str(index) for index in range(16))
        cluster = cluster_of(node("gpu-0", machine, gpus=words))
        answer = place(cluster, wanted(gpus=8), kept)
        assert isinstance(answer, Placement)
        assert answer.predicted_bus_bandwidth_gb_s is not None
        assert answer.predicted_bus_bandwidth_gb_s >= 80, "eight GPUs with links for four rings of 20 GB/s"
        assert not set(answer.shares[0].gpus) & set(held)
        if held:
            assert answer == place(cluster, wanted(gpus=8), Tables())


@pytest.mark.parametrize("seed", [3, 7])
def test_groups_of_every_set_are_looked_at_once(seed: int) -> None:
    """The first decision on sixteen GPUs with any links, for a job with tensor groups: within its second."""
    cluster, request = cluster_of(node("gpu-0", irregular(seed))), wanted(gpus=8, parallelism={"tensor": 2})
    answer, calls = calls_of(lambda: place(cluster, request, Tables()))
    assert isinstance(answer, Placement)
    assert calls < FIRST_CALLS


def test_beyond_its_budget_it_is_the_best_so_far_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("closeknit.placement.gpusets.best_first.WHOLE_STEPS", 1)
    monkeypatch.setattr("closeknit.placement.gpusets.best_first.MORE_STEPS", 1)
    monkeypatch.setattr(search_cost, "MACHINE_STEPS", 0)
    answer = place(cluster_of(node("gpu-0", MACHINES["six any"])), wanted(gpus=4), Tables())
    assert isinstance(answer, Placement)
    assert answer.ended_at_budget
    assert answer.predicted_bus_bandwidth_gb_s is not None


@pytest.mark.parametrize("nodes", [ASKED_NODES, ASKED_NODES + 1])
def test_a_gang_over_several_and_machines_that_are_many_are_not_searched(
    nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_cost, "MACHINE_STEPS", 0)
    machine = MACHINES["six any"]
    cluster = cluster_of(*(node(f"gpu-{number}", machine) for number in range(nodes)))
    alone, gang = (place(cluster, wanted(gpus=gpus), Tables()) for gpus in (3, 12))
    assert isinstance(alone, Placement)
    assert isinstance(gang, Placement)
    assert (alone.predicted_bus_bandwidth_gb_s is None) == (nodes > ASKED_NODES)
    assert (gang.predicted_bus_bandwidth_gb_s, gang.ended_at_budget) == (None, True)


def test_what_is_learned_before_jobs_ask_changes_no_answer_and_leaves_little_to_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search_cost, "MACHINE_STEPS", 0)
    machines = [node("gpu-0", MACHINES["six any"]), node("gpu-1", irregular(3, 7))]
    cluster, known = cluster_of(*machines), Tables()
    steps = 1
    while known.learn_asked(cluster.forest.empty):
        steps += 1
    assert steps == 10 + 11 - 1, (
        "1 to 6 GPUs, or 7, and those in groups; the last of one machine with the other's first"
    )
    for gpus, tensor in [*((gpus, 1) for gpus in range(2, 8)), (4, 2), (4, 4), (6, 2)]:
        request, fresh = wanted(gpus=gpus, parallelism={"tensor": tensor}), Tables()
        answer, all_calls = calls_of(lambda: place(cluster, request, fresh))  # noqa: B023 - called at once
        again, calls = calls_of(lambda: place(cluster, request, known))  # noqa: B023
        assert isinstance(answer, Placement)
        assert again == answer
        assert calls < all_calls / 2


def test_of_a_cluster_without_such_machines_there_is_nothing_to_learn() -> None:
    assert not Tables().learn_asked(cluster_of(node("gpu-0", graph("a100x4"))).forest.empty)
