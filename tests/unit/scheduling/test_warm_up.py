"""What is asked of a waiting shape between two decisions, so that no decision asks it for the first time."""

from dataclasses import replace
from datetime import timedelta

import pytest

from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.store.watched_kinds import change, from_document
from closeknit.lifecycle.verdict import Book
from closeknit.placement.gang.cache import Tables
from closeknit.placement.refusals import ideal
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.schedule import schedule
from closeknit.scheduling.warm_up import MOST, WarmUp
from scenarios.manifests import cluster_topology, node, node_topology, pod, training_job
from scenarios.story import NOW

LATER = NOW + timedelta(seconds=1)


def full(*gpus: int) -> Cluster:
    """One node that somebody else holds, and a job for each number of GPUs."""
    labels = {"net.example/rack": "r1"}
    manifests = [cluster_topology("rack"), node("gpu-1", labels=labels), node_topology("gpu-1")]
    manifests.append(pod("holds", node="gpu-1", requests={"nvidia.com/gpu": "8"}))
    manifests += [training_job(f"train-{number}", spec={"gpus": each}) for number, each in enumerate(gpus)]
    return build([value for value in map(from_document, manifests) if value is not None])


def warmed(cluster: Cluster, tables: Tables) -> tuple[Memory, WarmUp]:
    """The memory of a decision, and its shapes asked for."""
    found, warm_up = schedule(cluster, tables, Memory(), NOW), WarmUp()
    while warm_up.is_left(found):
        warm_up.step(found, tables)
    return Memory(schedule=found), warm_up


def test_a_decision_searches_no_empty_cluster_for_what_was_warmed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, tables = full(2, 4), Tables()
    memory, _ = warmed(cluster, tables)
    monkeypatch.setattr(ideal, "best_layout", lambda *_: pytest.fail("it is asked in a decision"))
    (holder,) = cluster.pods.values()
    free = cluster.after([replace(change(holder), new=None)]).at(LATER)
    made = schedule(free, tables, memory, LATER)
    assert [type(verdict) for verdict in made.values()] == [Book, Book]


def test_each_shape_is_asked_for_once_on_one_version_of_the_empty_cluster() -> None:
    cluster, tables = full(2, 4, 4), Tables()
    memory, warm_up = warmed(cluster, tables)
    assert memory.schedule is not None
    assert not warm_up.is_left(schedule(cluster, tables, memory, LATER))
    added = map(from_document, (node("gpu-2", labels={"net.example/rack": "r2"}), node_topology("gpu-2")))
    larger = cluster.after([change(value) for value in added if value is not None])
    assert warm_up.is_left(schedule(larger, tables, memory, LATER))


def test_of_too_many_shapes_the_first_are_asked_for() -> None:
    cluster, tables = full(*range(1, MOST + 40)), Tables()
    found, warm_up, steps = schedule(cluster, tables, Memory(), NOW), WarmUp(), 0
    while warm_up.is_left(found):
        warm_up.step(found, tables)
        steps += 1
    assert steps == MOST
