"""The forest that follows events is the one of the nodes that are left, and so are the answers given on it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closeknit.api.affinity import NodeAffinity, NodeRequirement, Operator, Term
from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.forest import forest as forest_module
from closeknit.cluster.forest import group as group_module
from closeknit.cluster.forest.forest import Forest
from closeknit.cluster.node.node import NodeView, RdmaOffer
from closeknit.cluster.store.watched_kinds import change
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place, place
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import Request
from scenarios.clusters import graph, held, node, wanted
from scenarios.machines import MACHINES
from scenarios.manifests import Manifest, booked, cluster_topology, node_topology, training_job
from scenarios.manifests import node as node_manifest
from scenarios.views import parsed

LEVELS = ("block", "rack")
NAMES = [f"gpu-{number}" for number in range(7)]


def place_labels(block: str | None, rack: str | None) -> dict[str, str]:
    labels = {"net.example/block": block, "net.example/rack": rack}
    return {key: value for key, value in labels.items() if value}


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    """One object, new or changed: a Node that moves, a machine with faults, or a job's booking."""
    name = draw(st.sampled_from(NAMES))
    kind = draw(st.sampled_from(["Node", "NodeTopology", "TrainingJob"]))
    if kind == "Node":
        labels = place_labels(draw(st.sampled_from(["b1", "b2", None])), draw(st.sampled_from(["r1", "r2", None])))
        taints = draw(st.sampled_from([[], [], [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}]]))
        allocatable = draw(st.sampled_from([{}, {"rdma/hca": "8"}]))
        return node_manifest(name, labels=labels, taints=taints, allocatable=allocatable)
    if kind == "NodeTopology":
        broken = draw(st.sets(st.integers(0, 7), max_size=2))
        states = [{"index": index, "state": "Unhealthy", "reasons": ["XID79"]} for index in sorted(broken)]
        machine = draw(st.sampled_from(["hgx-h200", "dgx-1v", "a100x4"]))
        return {**node_topology(name, gpus=states), "spec": MACHINES[machine](name).wire()}
    gpus = draw(st.sets(st.integers(0, 3), min_size=1))
    return training_job(f"train-{draw(st.integers(0, 3))}", placement=booked((name, sorted(gpus))))


def key(manifest: Manifest) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


@st.composite
def jobs(draw: st.DrawFn) -> Request:
    topology: dict[str, Any] = {"fabric": {"required": draw(st.sampled_from([None, None, "block", "host"]))}}
    request = wanted(gpus=draw(st.integers(1, 20)), topology=topology)
    selector = draw(st.sampled_from([(), (), (("net.example/block", "b1"),)]))
    affinity = draw(st.sampled_from([None, None, in_block("b1"), in_block("b1", "b2")]))
    avoided = frozenset(draw(st.sets(st.sampled_from(NAMES), max_size=2)))
    return replace(request, node_selector=selector, affinity=affinity, avoided=avoided)


def in_block(*blocks: str) -> NodeAffinity:
    return NodeAffinity((Term((NodeRequirement("net.example/block", Operator.IN, frozenset(blocks)),), ()),))


KNOWN = Tables()


class Fresh(Tables):
    """Tables that know nothing but the rings of machines, which no event changes and which take most of the time."""

    def __init__(self) -> None:
        super().__init__()
        self._efforts = KNOWN._efforts
        self._rings = KNOWN._rings


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(manifests(), min_size=1, max_size=4), min_size=1, max_size=8), jobs(), jobs())
def test_a_cluster_that_followed_events_answers_as_one_built_from_scratch(
    batches: Sequence[Sequence[Manifest]], first: Request, second: Request
) -> None:
    topology = cluster_topology(*LEVELS)
    left: dict[tuple[str, str], Manifest] = {key(topology): topology}
    followed, kept = Cluster.empty().after([change(parsed(topology))]), Fresh()
    for batch in batches:
        left |= {key(manifest): manifest for manifest in batch}
        followed = followed.after([change(parsed(manifest)) for manifest in batch])
        assert followed.forest == Forest.of(followed.levels, followed.nodes.values())
        scratch = build(parsed(manifest) for manifest in left.values())
        assert scratch.forest == followed.forest
        fresh = Fresh()
        for request in (first, second, first):
            decision = place(followed, request, kept)
            assert decision == place(scratch, request, fresh)
            assert can_place(followed, request, kept) == isinstance(decision, Placement)


@st.composite
def views(draw: st.DrawFn, name: str) -> NodeView:
    view = node(
        name,
        graph(draw(st.sampled_from(["hgx-h200", "a100x4"]))),
        path=(draw(st.sampled_from(["b1", "b2", None])), draw(st.sampled_from(["r1", "r2", None]))),
        offer=draw(st.sampled_from(["DRA", "plugin"])),
        excluded=draw(st.sampled_from([None, None, ("NotReady", "KubeletNotReady")])),
    )
    view = replace(view, rdma=draw(st.sampled_from([None, RdmaOffer("rdma/hca", 0), RdmaOffer("rdma/hca", 3)])))
    return held(view, *draw(st.sets(st.integers(0, 3))))


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_a_forest_after_any_changes_is_the_forest_of_what_is_left(data: st.DataObject) -> None:
    nodes: dict[str, NodeView] = {}
    forest = Forest.of((*LEVELS, "host"), ())
    for _ in range(data.draw(st.integers(1, 10))):
        pairs: list[tuple[NodeView | None, NodeView | None]] = []
        for name in data.draw(st.sets(st.sampled_from(NAMES), min_size=1, max_size=4)):
            after = data.draw(views(name)) if data.draw(st.sampled_from([True, True, False])) else None
            pairs.append((nodes.pop(name, None), after))
            if after:
                nodes[name] = after
        forest = forest.after(pairs)
        assert forest == Forest.of((*LEVELS, "host"), nodes.values())


def test_what_placement_does_not_read_leaves_the_forest_as_it_is() -> None:
    view = node("a", graph("a100x4"), path=("b1", "r1"), labels={"zone": "x"})
    forest = Forest.of((*LEVELS, "host"), [view])
    again = replace(view, topology_generation=9, rdma=RdmaOffer("rdma/hca", 7))
    assert forest.after([(view, again)]) is forest
    assert forest.after([(view, replace(view, labels={"zone": "x"}))]) is forest
    booked_too = forest.after([(view, held(view, 1))])
    assert booked_too.empty is forest.empty
    assert booked_too.labels is forest.labels
    moved = forest.after([(view, replace(view, labels={"zone": "y"}))])
    assert (moved.now is forest.now, moved.labels is forest.labels) == (True, False)


def test_a_node_that_pods_come_to_is_not_looked_at_as_if_it_were_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gang of 512 comes to so many at once."""
    view = node("a", graph("a100x4"), path=("b1", "r1"))
    forest = Forest.of((*LEVELS, "host"), [view])
    monkeypatch.setattr(forest_module, "_emptied", None)
    told = Mock(wraps=group_module._kind)
    monkeypatch.setattr(group_module, "_kind", told)
    assert forest.after([(view, held(view, 1))]).empty is forest.empty
    assert told.call_count == 1, "of a machine that stays its kind is told once"


@pytest.mark.parametrize(
    "selection",
    [
        {"node_selector": (("pool", "train"),)},
        {"affinity": NodeAffinity((Term((NodeRequirement("pool", Operator.IN, frozenset({"train"})),), ()),))},
    ],
    ids=["node selector", "node affinity"],
)
def test_labels_that_change_alone_change_the_answer_of_those_who_select_by_them(selection: dict[str, Any]) -> None:
    """The trees are the same objects, so that nothing that was kept for the old labels may be used."""
    machine = {**node_topology("gpu-0"), "spec": MACHINES["a100x4"]("gpu-0").wire()}
    before = build([parsed(machine), parsed(node_manifest("gpu-0", gpus=4, labels={"pool": "web"}))])
    after = before.after([change(parsed(node_manifest("gpu-0", gpus=4, labels={"pool": "train"})))])
    assert after.forest.now is before.forest.now
    request = replace(wanted(gpus=4), **selection)
    tables = Tables()
    assert not can_place(before, request, tables)
    assert can_place(after, request, tables)
    assert isinstance(place(after, request, tables), Placement)
