"""A gang too large to be told of itself is refused before anything is booked, and asked for again once it may fit."""

from datetime import UTC, datetime
from typing import Any

import pytest

from closeknit.api.names import PendingReason
from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.kinds import from_document
from closeknit.lifecycle import schedule as module
from closeknit.lifecycle.memory import Memory
from closeknit.lifecycle.schedule import schedule
from closeknit.lifecycle.verdict import Book, Cause, Wait
from closeknit.placement.place import place
from closeknit.placement.placement import NoFit, Placement
from closeknit.placement.request import Request
from closeknit.placement.tables import Tables
from scenarios.manifests import node, node_topology, training_job

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
NODES = 800  # with the longest names 741 tasks fit into TF_CONFIG
NAMES = {"name": "j" * 40, "namespace": "n" * 63}


def cluster(**spec: Any) -> Cluster:
    names = [f"gpu-{index}" for index in range(NODES)]
    machines = [made for name in names for made in (node(name, gpus=1), node_topology(name, count=1))]
    wanted = {"gpus": NODES, "framework": "TensorFlow", "topology": {"gpusPerNode": 1}, **spec}
    jobs = [training_job(**NAMES, spec=wanted), training_job("small", spec={"gpus": 1})]
    found = [from_document(each) for each in (*machines, *jobs)]
    return build(each for each in found if each is not None)


def test_it_is_told_and_keeps_no_other_waiting() -> None:
    made = schedule(cluster(), Tables(), Memory(), NOW)
    large, small = (made.by_key[key] for key in sorted(made.by_key))
    assert isinstance(large.verdict, Wait)
    refusal = large.verdict.refusal
    assert (refusal.cause, refusal.reason) == (Cause.REFUSED, PendingReason.NOT_SUPPORTED)
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
    assert asked == [1]  # the small one's, which is booked anew


def test_of_another_framework_the_gang_is_booked() -> None:
    made = schedule(cluster(framework="PyTorch"), Tables(), Memory(), NOW)
    large, _ = (made.by_key[key] for key in sorted(made.by_key))
    assert isinstance(large.verdict, Book)
