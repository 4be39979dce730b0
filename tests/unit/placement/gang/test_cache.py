"""What placement keeps stays small however long the process lives, whoever asks, and whatever has gone by."""

import gc
from dataclasses import replace
from typing import Any

import pytest

from closeknit.cluster.cluster import Cluster
from closeknit.cluster.forest.domain import Domain
from closeknit.placement.allreduce.rings import rings
from closeknit.placement.candidates.usable_areas import Area
from closeknit.placement.gang import cache
from closeknit.placement.gang.cache import FEW_GROUNDS, VERSIONS, Tables
from closeknit.placement.gpusets import set_facts
from closeknit.placement.gpusets.set_facts import SetFacts
from closeknit.placement.place import can_place, place
from closeknit.placement.spread import cheapest
from closeknit.placement.spread.leaf import LeafNodes
from closeknit.placement.values import bounded
from scenarios.clusters import cluster_of, graph, held, node, wanted


def fleet(count: int = 6, machine: str = "hgx-h200") -> Cluster:
    return cluster_of(*(node(f"gpu-{n}", graph(machine), labels={"pool": "a"}) for n in range(count)))


def roots_alive() -> int:
    """Whole trees that somebody still holds; these clusters have no level, so that each tree is one domain."""
    gc.collect()
    return sum(isinstance(found, Domain) for found in gc.get_objects())


@pytest.mark.parametrize(
    "selection",
    [{}, {"node_selector": (("pool", "a"),)}, {"avoided": frozenset({"gpu-5"})}],
    ids=["all", "by labels", "but one"],
)
def test_versions_that_are_gone_are_let_go(selection: dict[str, Any]) -> None:
    """Each of them may be as large as the cluster: 0.3 MB where 40,000 nodes have no level."""
    tables, cluster = Tables(), fleet()
    before = roots_alive()
    for turn in range(10 * VERSIONS):
        name = f"gpu-{turn % 6}"
        view = held(cluster.nodes[name], 0) if 0 in cluster.nodes[name].free else fleet().nodes[name]
        cluster = replace(cluster, nodes={**cluster.nodes, name: view})
        request = replace(wanted(gpus=16), **selection)
        assert can_place(cluster, request, tables)
        place(cluster, request, tables)
    assert roots_alive() - before <= 6 * VERSIONS


def test_empty_clusters_that_are_gone_are_let_go() -> None:
    """What an empty cluster is changes with every machine that comes or goes."""
    tables = Tables()
    before = roots_alive()
    for count in range(1, 10 * VERSIONS):
        place(fleet(count), wanted(gpus=8), tables)
    assert roots_alive() - before <= 6 * VERSIONS


def test_jobs_that_all_need_another_amount_of_cpu_see_their_grounds_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of how many that is true is bounded by how much the grounds of a cluster weigh."""
    views = (replace(view, spare={"cpu": 32_000 + number}) for number, view in enumerate(fleet().nodes.values()))
    cluster, table = cluster_of(*views), Tables()
    requests = [replace(wanted(gpus=16), needs=(("cpu", 32_000 + each),)) for each in range(3 * FEW_GROUNDS)]
    seen = [table.ground(cluster, each) for each in requests]
    assert all(table.ground(cluster, each) is ground for each, ground in zip(requests, seen, strict=True))
    monkeypatch.setattr(cache, "AREAS", 2 * FEW_GROUNDS)
    assert table.ground(cluster, requests[-1]) is seen[-1]
    assert table.ground(cluster, requests[0]) is not seen[0]


def test_what_is_kept_of_a_machine_does_not_grow_with_what_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any user may ask for any least bandwidth, and each is worked out by itself."""
    monkeypatch.setattr(bounded, "MANY_KEPT", 200)
    monkeypatch.setattr(set_facts, "MANY_LISTED", 200)
    small, tables = Tables(), Tables()
    cluster = cluster_of(*(held(view, number) for number, view in enumerate(fleet(machine="dgx-1v").nodes.values())))
    answers = []
    for step in range(100):
        request = wanted(gpus=6, topology={"minBusBandwidthGBps": 10 + step / 7})
        answers.append(place(cluster, request, small))
    sets = small.sets_of(graph("dgx-1v"))
    kept = [found for one in (sets, sets.facts) for found in vars(one).values() if isinstance(found, bounded.Bounded)]
    assert max(map(len, kept)) > 100
    assert all(len(found) <= 200 for found in kept)
    monkeypatch.undo()
    for step in range(100):
        request = wanted(gpus=6, topology={"minBusBandwidthGBps": 10 + step / 7})
        assert place(cluster, request, tables) == answers[step]


def test_what_is_kept_of_spreads_does_not_grow_with_what_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any user may ask for any number of GPUs, and each is worked out by itself."""
    cluster = cluster_of(
        *(node(f"gpu-{n:02}", graph("hgx-h200"), path=(f"r{n // 4}",)) for n in range(40)), levels=("rack",)
    )
    requests = [wanted(gpus=gpus) for gpus in range(1, 321)]
    known, tables = [place(cluster, request, Tables()) for request in requests[::40]], Tables()
    monkeypatch.setattr(cheapest, "MANY_COSTS", 10)
    answers = [place(cluster, request, tables) for request in requests]
    assert answers[::40] == known
    assert max(len(filling._costs) for filling in tables._fillings.values()) < 50


def test_lists_of_sets_are_counted_by_the_sets_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_facts, "MANY_LISTED", 100)
    of_machine = SetFacts(graph("dgx-1v"), rings)
    for pool in range(1, 256):
        assert len(of_machine.of_count(pool, 1)) == pool.bit_count()
        of_machine.of_count(pool, pool.bit_count() // 2 + 1)
        listed = [found for found in vars(of_machine).values() if isinstance(found, dict)]
        assert sum(len(one) for found in listed for one in found.values() if isinstance(one, tuple)) <= 100 + 70


def test_a_job_that_more_kinds_of_machines_hold_leaves_the_search_of_a_larger_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The one has four ways beside, with a quarter of a budget each, the other has one of them alone."""
    nodes = [
        node(f"{kind}-{n:02}", graph(machine), path=(f"{kind}{n // 4}",), gpus="0 1 2 x x x x x")
        for kind, (machine, count) in enumerate({"hgx-h200": 40, "hgx-a100": 20, "dgx-1v": 20, "pairs8": 20}.items())
        for n in range(count)
    ]
    cluster, tables = cluster_of(*nodes, levels=("rack",)), Tables()
    asked: list[int] = []
    of_area = LeafNodes.cost

    def counted(self: LeafNodes, area: Area, units: int) -> int | None:
        asked.append(units)
        return of_area(self, area, units)

    monkeypatch.setattr(LeafNodes, "cost", counted)
    every, larger = wanted(gpus=53), wanted(gpus=103)
    first = [place(cluster, request, tables) for request in (every, larger)]
    assert asked
    asked.clear()
    assert [place(cluster, request, tables) for request in (every, larger)] == first
    assert not asked
