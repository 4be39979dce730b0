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
from scenarios.manifests import booked, cluster_topology, node, node_topology, training_job

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


def test_a_search_around_the_last_answer_asks_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    questions = 0

    def counted(*arguments: Any) -> bool:
        nonlocal questions
        questions += 1
        return can_place(*arguments)

    monkeypatch.setattr(f"{earliest_fit.__module__}.can_place", counted)
    first = earliest_fit(CLUSTER, asked(16, "rack"), STRIPED, Tables())
    assert first is not None
    assert len(first.ended) == RACKS + 1
    assert questions > 4
    questions = 0
    again = earliest_fit(CLUSTER, asked(16, "rack"), STRIPED, Tables(), first)
    assert again is not None
    assert (again.ended, again.placement) == (first.ended, first.placement)
    assert questions == 2


def test_an_answer_too_far_away_leaves_the_search_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{earliest_fit.__module__}.MOST_RELEASED", 2 * RACKS)
    gang = asked(16, "rack")
    found = earliest_fit(CLUSTER, gang, STRIPED, Tables())
    assert found is not None
    far = replace(found, ended=tuple(job for jobs in STRIPED[: RACKS + 6] for job in jobs), futures=())
    assert told(earliest_fit(CLUSTER, gang, STRIPED, Tables(), far)) == told(found)


@pytest.mark.parametrize("seed", range(30))
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
