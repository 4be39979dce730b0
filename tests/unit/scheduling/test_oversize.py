"""A gang too large to be told of itself is refused before anything is booked, and asked for again once it may fit."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from closeknit.api.reasons import PendingReason
from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.store.watched_kinds import from_document
from closeknit.lifecycle.verdict import Book, Wait, WaitCause
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import place
from closeknit.placement.values.placement import NoFit, Placement
from closeknit.placement.values.request import Request
from closeknit.scheduling.memo import questions as module
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.schedule import schedule
from scenarios.manifests import cluster_topology, node, node_topology, training_job

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
NODES = 800  # with the longest names 741 tasks fit into TF_CONFIG
NAMES = {"name": "j" * 40, "namespace": "n" * 63}


def cluster(**spec: Any) -> Cluster:
    names = [f"gpu-{index}" for index in range(NODES)]
    racks = [{"net.example/rack": "r2" if index < 5 else "r1"} for index in range(NODES)]
    nodes = [node(name, gpus=1, labels=rack) for name, rack in zip(names, racks, strict=True)]
    machines = [cluster_topology("rack"), *nodes, *(node_topology(name, count=1) for name in names)]
    wanted = {"gpus": NODES, "framework": "TensorFlow", "topology": {"gpusPerNode": 1}, **spec}
    jobs = [training_job(**NAMES, spec=wanted), training_job("small", spec={"gpus": 1})]
    for job in jobs:
        job["metadata"]["creationTimestamp"] = "2026-11-21T10:00:00Z"
    found = [from_document(each) for each in (*machines, *jobs)]
    return build(each for each in found if each is not None)


def test_it_is_told_and_keeps_no_other_waiting() -> None:
    made = schedule(cluster(), Tables(), Memory(), NOW)
    large, small = (made.by_key[key] for key in sorted(made.by_key))
    assert isinstance(large.verdict, Wait)
    refusal = large.verdict.refusal
    assert (refusal.cause, refusal.reason) == (WaitCause.REFUSED, PendingReason.NOT_SUPPORTED)
    assert refusal.message.startswith("TF_CONFIG would have 14")
    assert isinstance(small.verdict, Book)


def test_while_nothing_changes_it_is_not_placed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    there, tables = cluster(), Tables()
    made = schedule(there, tables, Memory(), NOW)
    asked: list[int] = []

    def noted(scene: Cluster, request: Request, known: Tables) -> Placement | NoFit:
        asked.append(request.gpus)
        return place(scene, request, known)

    monkeypatch.setattr(module, "place", noted)
    schedule(there, tables, Memory(schedule=made), NOW)
    assert asked == [1]  # the small one's, which is booked again


def test_it_is_asked_again_when_its_patience_is_over() -> None:
    """Over more racks it may be fewer Pods."""
    fabric = {"preferred": "rack", "patience": "10m"}
    there = cluster(topology={"gpusPerNode": 1, "fabric": fabric}, gpus=NODES - 10)
    made = schedule(there, Tables(), Memory(), NOW)
    large, _ = (made.by_key[key] for key in sorted(made.by_key))
    assert isinstance(large.verdict, Wait)
    assert large.verdict.refusal.reason == PendingReason.NOT_SUPPORTED
    assert large.until == NOW + timedelta(minutes=10)


def test_of_another_framework_the_gang_is_booked() -> None:
    made = schedule(cluster(framework="PyTorch"), Tables(), Memory(), NOW)
    large, _ = (made.by_key[key] for key in sorted(made.by_key))
    assert isinstance(large.verdict, Book)
