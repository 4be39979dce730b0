"""Lost nodes of a gang are replaced by the best ones, against every choice on small clusters."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import pytest

from closeknit.api.nodetopology import Transport
from closeknit.api.reasons import ExclusionReason
from closeknit.cluster.booking.booking import BookingShare
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node.node import Exclusion, Holder, HolderKind, NodeView
from closeknit.placement.allreduce.bandwidth import EVERY_NIC
from closeknit.placement.gang.cache import Tables
from closeknit.placement.gang.prediction import level_cap, level_floor, predict
from closeknit.placement.place import place
from closeknit.placement.replacement_nodes import not_replaced, replacement
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import Request
from scenarios.clusters import cluster_of, graph, held, node, wanted

LEVELS = ("block", "rack")
FABRIC = {"levelBandwidthGBps": {"block": 300.0, "rack": 400.0}}
FLEETS = (("hgx-h200", "hgx-h200", "hgx-a100"), ("dgx-1v", "dgx-1v-link-down"), ("dgx-1p", "dgx-1v"))
OWN = Holder(HolderKind.JOB, "team-a", "train")
TABLES = Tables()


def booked(placement: Placement, lost: Sequence[str] = ()) -> tuple[BookingShare, ...]:
    """The shares of a placement, those on these nodes lost."""
    return tuple(
        BookingShare(
            share.node, share.gpus, share.first_rank, share.binding, share.nics, share.rdma_resource,
            lost=share.node in lost,
        )
        for share in placement.shares
    )  # fmt: skip


def holding(cluster: Cluster, placement: Placement, lost: Sequence[str]) -> Cluster:
    """The cluster where the job holds its placement, but for these nodes, which are dead."""
    nodes = dict(cluster.nodes)
    for share in placement.shares:
        view = nodes[share.node]
        nodes[share.node] = replace(
            view,
            free=tuple(gpu for gpu in view.free if gpu not in share.gpus),
            holders={**view.holders, **dict.fromkeys(share.gpus, OWN)},
        )
    for name in lost:
        nodes[name] = replace(cluster.nodes[name], exclusion=Exclusion(ExclusionReason.NOT_READY, "it is dead"))
    return cluster_of(*nodes.values(), levels=cluster.levels[:-1], fabric=FABRIC)


def any_cluster(chance: random.Random) -> Cluster:
    nodes: list[NodeView] = []
    fleet = chance.choice(FLEETS)
    for block in range(chance.randint(1, 3)):
        for rack in range(chance.randint(1, 3)):
            for _ in range(chance.randint(1, 3)):
                name = f"n{len(nodes):02}"
                kind = chance.choice(fleet)
                path = (f"b{block}", f"r{rack}") if chance.random() < 0.95 else (f"b{block}", None)
                view = node(name, graph(kind, name), path=path)
                if chance.random() < 0.3:
                    view = held(view, *chance.sample(range(8), chance.choice([1, 2, 4, 4, 8])))
                nodes.append(view)
    chance.shuffle(nodes)
    return cluster_of(*nodes, levels=LEVELS, fabric=FABRIC)


def merit(cluster: Cluster, parts: Sequence[tuple[str, int]]) -> tuple[object, ...]:
    """Kinds, domains and bandwidth of a gang of (node, mask of GPUs)."""
    views = [cluster.nodes[name] for name, _ in parts]
    counts = [
        len({view.domains[level] or f"?{view.name}" for view in views}) for level in range(len(cluster.levels) - 1)
    ]
    counts.append(len(parts))
    products = {view.machine.gpus[0].product for view in views if view.machine}
    placed = [
        (view.name, TABLES.sets_of(view.machine), mask, EVERY_NIC)
        for view, (_, mask) in zip(views, parts, strict=True)
        if view.machine
    ]
    network = (cluster.levels, FABRIC["levelBandwidthGBps"], counts)
    found = predict(placed, Transport.INFINIBAND, level_cap(*network), level_floor(*network))
    return len(products) > 1, tuple(counts), -(found.gb_s or 0)


def choices(cluster: Cluster, shares: Sequence[BookingShare]) -> Iterator[list[tuple[str, int]]]:
    """Every gang with the kept shares and other nodes in place of the lost ones."""
    kept = [
        (share.node, sum(1 << gpu for gpu in share.gpus)) for share in shares if not share.lost
    ]  # an index is a position here
    taken = {share.node for share in shares}
    size, lost = len(shares[0].gpus), sum(share.lost for share in shares)
    able = [
        view
        for view in cluster.nodes.values()
        if view.name not in taken and view.exclusion is None and len(view.free) >= size
    ]
    for chosen in combinations(able, lost):
        yield kept + [(view.name, best_mask(view, size)) for view in chosen]


def best_mask(view: NodeView, size: int) -> int:
    """The GPUs of a node that are the fastest there."""
    assert view.machine is not None
    sets = TABLES.sets_of(view.machine)

    def gb_s(mask: int) -> float:
        inside, nics = sets.bandwidth(mask, alone=False), sets.nics(mask, Transport.INFINIBAND, EVERY_NIC).gb_s
        assert inside is not None
        assert nics is not None
        return min(inside.order_gb_s, nics)

    return max((sum(1 << gpu for gpu in gpus) for gpus in combinations(view.free, size)), key=gb_s)


@pytest.mark.parametrize("seed", range(60))
def test_no_other_choice_is_better(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - a cluster that can be made again
    cluster = any_cluster(chance)
    size = chance.choice([8, 4, 4, 2])
    request = wanted(gpus=size * chance.randint(2, 4), topology={"gpusPerNode": size})
    placement = place(cluster, request, TABLES)
    if not isinstance(placement, Placement) or any(len(share.gpus) != size for share in placement.shares):
        return
    names = [share.node for share in placement.shares]
    lost = chance.sample(names, chance.randint(1, len(names) - 1))
    now, shares = holding(cluster, placement, lost), booked(placement, lost)
    assert not_replaced(now, request, shares) is None
    found = replacement(now, request, shares, TABLES)
    every = list(choices(now, shares))
    if not every:
        assert found.placement is None
        assert len(found.shares) < len(lost)
        return
    assert found.placement is not None
    got = [(share.node, sum(1 << gpu for gpu in share.gpus)) for share in found.placement.shares]
    best = min(merit(now, each) for each in every)
    assert merit(now, got) == best
    assert found.placement.predicted_bus_bandwidth_gb_s == pytest.approx(-best[2])  # type: ignore[operator]
    for before, after in zip(placement.shares, found.placement.shares, strict=True):
        assert (before.first_rank, len(before.gpus)) == (after.first_rank, len(after.gpus))
        assert (before.node == after.node) is (before.node not in lost)


def rows(*names: str, rack: str = "r1", gpus: str = "") -> list[NodeView]:
    return [node(name, graph("hgx-h200", name), path=("b1", rack), gpus=gpus) for name in names]


def swapped(
    nodes: Sequence[NodeView], lost: Sequence[str], *others: NodeView, **spec: object
) -> tuple[Request, object]:
    cluster = cluster_of(*nodes, levels=LEVELS, fabric=FABRIC)
    request = wanted(gpus=8 * len(nodes), **spec)
    placement = place(cluster, request, TABLES)
    assert isinstance(placement, Placement)
    now = holding(cluster_of(*nodes, *others, levels=LEVELS, fabric=FABRIC), placement, lost)
    return request, replacement(now, request, booked(placement, lost), TABLES)


def test_one_that_can_be_replaced_is_though_another_cannot() -> None:
    _, found = swapped(rows("a", "b", "c", "d"), ["b", "d"], *rows("e", rack="r2"))
    assert found.placement is None  # type: ignore[attr-defined]
    assert {at: share.node for at, share in found.shares.items()} == {1: "e"}  # type: ignore[attr-defined]


def test_a_node_of_the_same_rack_comes_before_one_elsewhere() -> None:
    _, found = swapped(rows("a", "b"), ["a"], *rows("aa", rack="r2"), *rows("z"))
    assert [share.node for share in found.placement.shares] == ["z", "b"]  # type: ignore[attr-defined]


def test_nothing_outside_of_the_required_level_is_taken() -> None:
    _, found = swapped(rows("a", "b"), ["a"], *rows("z", rack="r2"), topology={"fabric": {"required": "rack"}})
    assert found.shares == {}  # type: ignore[attr-defined]


def test_a_kept_node_with_room_is_no_other_node() -> None:
    cluster = cluster_of(*rows("a", "b"), levels=LEVELS, fabric=FABRIC)
    request = wanted(gpus=8, topology={"gpusPerNode": 4})
    placement = place(cluster, request, TABLES)
    assert isinstance(placement, Placement)
    now = holding(cluster, placement, ["a"])
    assert replacement(now, request, booked(placement, ["a"]), TABLES).shares == {}


def test_more_than_are_compared_at_once_are_replaced_part_after_part() -> None:
    names = [f"n{number:02d}" for number in range(20)]
    others = rows(*(f"x{number:02d}" for number in range(17)))
    _, found = swapped(rows(*names), names[:18], *others, *rows("far", rack="r2"))
    nodes = [share.node for share in found.placement.shares]  # type: ignore[attr-defined]
    assert nodes[18:] == names[18:]
    assert sorted(nodes[:18]) == sorted([*(view.name for view in others), "far"])
    _, found = swapped(rows(*names), names[:18], *others)
    assert found.placement is None  # type: ignore[attr-defined]
    assert sorted(found.shares) == [*range(17)], "those that can be are replaced"  # type: ignore[attr-defined]


def test_lost_nodes_of_several_sizes_are_replaced_by_nodes_of_their_sizes() -> None:
    large, small = rows("a", "b"), rows("c", "d", gpus="0 1 2 3 other other other other")
    cluster = cluster_of(*large, *small, levels=LEVELS, fabric=FABRIC)
    request = wanted(gpus=20)
    placement = place(cluster, request, TABLES)
    assert isinstance(placement, Placement)
    sizes = {share.node: len(share.gpus) for share in placement.shares}
    lost = [max(sizes, key=lambda name: sizes[name]), min(sizes, key=lambda name: sizes[name])]
    assert sizes[lost[0]] != sizes[lost[1]]
    others = rows("x", "y")
    now = holding(cluster_of(*large, *small, *others, levels=LEVELS, fabric=FABRIC), placement, lost)
    shares = booked(placement, lost)
    assert not_replaced(now, request, shares) is None
    found = replacement(now, request, shares, TABLES)
    assert found.placement is not None
    for before, after in zip(placement.shares, found.placement.shares, strict=True):
        assert (before.first_rank, len(before.gpus)) == (after.first_rank, len(after.gpus))
        assert (before.node == after.node) is (before.node not in lost)
