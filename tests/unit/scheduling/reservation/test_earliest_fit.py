"""The earliest moment at which a gang fits, searched from nothing and around the last answer."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from closeknit.api.names import JobKey
from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.store.watched_kinds import from_document
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place
from closeknit.placement.values.request import Request
from closeknit.scheduling.reservation.earliest import EarliestFit, earliest_fit
from scenarios.clusters import wanted
from scenarios.machines import hgx_h200
from scenarios.manifests import booked, cluster_topology, node, node_topology, training_job, uuids, worker

RACKS = 8
"""Of two nodes, each held by a job of its own."""


def made(manifests: list[dict[str, Any]]) -> Cluster:
    found = (from_document(manifest) for manifest in manifests)
    return build(each for each in found if each is not None)


def manifests() -> list[dict[str, Any]]:
    found = [cluster_topology("rack")]
    for number in range(2 * RACKS):
        name = f"gpu-{number:02d}"
        found += [
            node(name, labels={"net.example/rack": f"r{number // 2}"}),
            {**node_topology(name), "spec": hgx_h200(name).wire()},
            training_job(f"job-{number:02d}", spec={"gpus": 8}, placement=booked((name, range(8))), attempt=1),
        ]
    return found


CLUSTER = made(manifests())


def asked(gpus: int, required: str | None) -> Request:
    return wanted(gpus=gpus, topology={"fabric": {"required": required} if required else {}})


def ends(order: Sequence[int]) -> list[list[JobKey]]:
    return [[JobKey("team-b", f"job-{number:02d}")] for number in order]


# The first node of each rack, and then the second ones: a rack is free after the ninth.
STRIPED = ends([*range(0, 2 * RACKS, 2), *range(1, 2 * RACKS, 2)])


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[Cluster]:
    """The clusters that placement is asked in."""
    asked_in: list[Cluster] = []

    def counted(cluster: Cluster, *rest: Any) -> bool:
        asked_in.append(cluster)
        return can_place(cluster, *rest)

    monkeypatch.setattr(f"{earliest_fit.__module__}.can_place", counted)
    return asked_in


@pytest.fixture
def uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the free GPUs of the domains told nothing."""
    monkeypatch.setattr(f"{earliest_fit.__module__}._Futures.with_too_few_gpus", lambda *_: 0)


def test_nothing_is_asked_while_no_domain_has_as_many_free_gpus(questions: list[Cluster]) -> None:
    for _ in range(2):
        found = earliest_fit(CLUSTER, asked(16, "rack"), STRIPED, Tables())
        assert found is not None
        assert len(found.ended) == RACKS + 1
    assert len(questions) == 2
    assert earliest_fit(CLUSTER, asked(32, "rack"), STRIPED, Tables()) is None
    assert earliest_fit(CLUSTER, asked(16, "campus"), STRIPED, Tables()) is None
    assert len(questions) == 2


@pytest.mark.usefixtures("uncounted")
def test_a_search_around_the_last_answer_asks_twice(questions: list[Cluster]) -> None:
    first = earliest_fit(CLUSTER, asked(16, "rack"), STRIPED, Tables())
    assert first is not None
    assert len(first.ended) == RACKS + 1
    assert len(questions) > 4
    questions.clear()
    again = earliest_fit(CLUSTER, asked(16, "rack"), STRIPED, Tables(), first)
    assert again is not None
    assert (again.ended, again.placement) == (first.ended, first.placement)
    assert len(questions) == 2


@pytest.mark.parametrize("seed", range(40))
def test_the_count_of_free_gpus_changes_no_answer(seed: int) -> None:
    """Also where nodes have no rack, are excluded, or are free and of no use, and where a job has Pods of before."""
    chance = Random(seed)  # noqa: S311
    docs = manifests()
    for number in range(2 * RACKS):
        name, index = f"gpu-{number:02d}", 1 + 3 * number
        gpus = range(chance.choice((0, 2, 4, 6)), 8)
        docs[index + 2] = training_job(
            f"job-{number:02d}", spec={"gpus": len(gpus)}, placement=booked((name, gpus)), attempt=2
        )
        if chance.random() < 0.2:
            docs[index] = node(name)
        elif chance.random() < 0.2:
            docs[index]["spec"] = {**docs[index].get("spec", {}), "unschedulable": True}
        if chance.random() < 0.2:
            other = f"gpu-{chance.randrange(2 * RACKS):02d}"
            docs.append(worker(f"job-{number:02d}", 0, node=other, gpus=uuids(other, *range(chance.randint(1, 8)))))
    cluster = made(docs)
    order = list(range(2 * RACKS))
    chance.shuffle(order)
    for gang in (asked(gpus, level) for gpus in (2, 8, 12, 16, 40) for level in (None, "rack", "host")):
        found = earliest_fit(cluster, gang, ends(order), Tables())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"{earliest_fit.__module__}._Futures.with_too_few_gpus", lambda *_: 0)
            assert told(found) == told(earliest_fit(cluster, gang, ends(order), Tables()))


@pytest.mark.usefixtures("uncounted")
def test_an_answer_too_far_away_leaves_the_search_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{earliest_fit.__module__}.MOST_RELEASED", 2 * RACKS)
    gang = asked(16, "rack")
    found = earliest_fit(CLUSTER, gang, STRIPED, Tables())
    assert found is not None
    far = replace(found, ended=tuple(job for jobs in STRIPED[: RACKS + 6] for job in jobs), futures=())
    assert told(earliest_fit(CLUSTER, gang, STRIPED, Tables(), far)) == told(found)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.usefixtures("uncounted")
def test_the_last_answer_changes_none(seed: int) -> None:
    chance = Random(seed)  # noqa: S311
    tables, known = Tables(), None
    order = list(range(2 * RACKS))
    chance.shuffle(order)
    gang = asked(chance.choice((8, 16, 32, 64)), chance.choice((None, "rack")))
    for _ in range(6):
        found = earliest_fit(CLUSTER, gang, ends(order), tables)
        assert told(earliest_fit(CLUSTER, gang, ends(order), tables, known)) == told(found)
        known = found
        moved = order.pop(chance.randrange(len(order)))  # one ends, at another moment or is over
        if chance.random() < 0.7:
            order.insert(chance.randrange(len(order) + 1), moved)


def told(found: EarliestFit | None) -> Any:
    return found and (found.ended, found.placement)
