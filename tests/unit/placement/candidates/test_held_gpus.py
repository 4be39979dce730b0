"""Holders of GPUs, counted from one version of a cluster to the next, are those that are counted at once."""

import gc
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest

from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node.node import Holder, NodeView
from closeknit.cluster.store.watched_kinds import change, from_document
from closeknit.placement.candidates import held_gpus
from closeknit.placement.candidates.held_gpus import HeldGpus
from closeknit.placement.gang import cache
from closeknit.placement.gang.cache import Tables
from closeknit.placement.values.request import Request, Toleration
from scenarios.clusters import wanted
from scenarios.manifests import Manifest, booked, cluster_topology, node, node_topology, pod, told, training_job, uuids

NODES = [f"gpu-{number:02d}" for number in range(12)]
STEPS = 60


def kinds() -> list[Request]:
    """Requests of all kinds of nodes: of any, of selected ones, of those with CPUs left, of all but one."""
    pooled = {"spec": {"nodeSelector": {"pool": "a"}, "containers": [{"name": "trainer"}]}}
    return [
        wanted(gpus=8),
        wanted(gpus=8, template=pooled),
        replace(wanted(gpus=8), needs=(("cpu", 64_000), ("pods", 1))),
        replace(wanted(gpus=8), avoided=frozenset({"gpu-01"})),
    ]


def some_node(rng: random.Random) -> Manifest:
    name = rng.choice(NODES)
    labels = {"net.example/rack": f"r{int(name[-2:]) // 4}", "pool": rng.choice("ab")}
    taints = [{"key": "site/busy", "effect": "NoSchedule"}] if rng.random() < 0.2 else []
    return node(name, labels=labels, allocatable={"cpu": rng.choice(["16", "128"])}, taints=taints)


def some_topology(rng: random.Random) -> Manifest:
    made = node_topology(rng.choice(NODES))
    ill = {"gpus": [{"index": 3, "healthy": False, "reasons": ["XID79"]}]}
    return {**made, "status": ill} if rng.random() < 0.3 else made


def some_job(rng: random.Random) -> Manifest:
    first = rng.randrange(6)
    shares = [(name, range(first, first + rng.randrange(1, 3))) for name in NODES if rng.random() < 0.3]
    name = f"job-{rng.randrange(6)}"
    return training_job(name, placement=booked(*shares), attempt=1) if shares else training_job(name)


def some_pod(rng: random.Random) -> Manifest:
    """A Pod with a GPU, of which sometimes nobody knows which it is."""
    name, number = rng.choice(NODES), rng.randrange(4)
    made = pod(f"pod-{number}", node=name, requests={"nvidia.com/gpu": "1"})
    return told(made, ("nvidia.com/gpu", uuids(name, 7))) if rng.random() < 0.5 else made


MAKERS: list[Callable[[random.Random], Manifest]] = [some_node, some_topology, some_job, some_pod]


def versions(seed: int) -> Iterator[Cluster]:
    """A cluster in which one object comes, changes or goes at a time."""
    rng = random.Random(seed)  # noqa: S311 - to be repeated
    cluster = Cluster.empty()
    start = [cluster_topology("rack"), *(made for name in NODES for made in (node(name), node_topology(name)))]
    for step in range(len(start) + STEPS):
        value = from_document(start[step] if step < len(start) else rng.choice(MAKERS)(rng))
        assert value is not None
        is_gone = step >= len(start) and rng.random() < 0.15
        cluster = cluster.after([replace(change(value), new=None) if is_gone else change(value)])
        if step >= len(start):
            yield cluster
            if rng.random() < 0.2:  # as a decision looks at the cluster without some GPUs, and then at itself again
                yield cluster.without({name: uuids(name, 0, 1) for name in rng.sample(sorted(cluster.nodes), 2)})
                yield cluster


def holders(cluster: Cluster, request: Request, tables: Tables) -> dict[Holder, int]:
    return dict(tables.ground(cluster, request).holders(cluster.nodes))


@pytest.mark.parametrize("seed", range(4))
def test_what_is_counted_from_version_to_version_is_what_is_counted_at_once(seed: int) -> None:
    kept, rng = Tables(), random.Random(seed)  # noqa: S311 - to be repeated
    seen: set[int] = set()
    for cluster in versions(seed):
        for request in kinds():
            if rng.random() < 0.7:  # a kind is not asked on every version
                found = holders(cluster, request, kept)
                assert found == holders(cluster, request, Tables())
                seen.add(len(found))
    assert len(seen) > 2


def test_only_nodes_that_have_changed_are_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []
    count = held_gpus.held

    def noted(*arguments: object) -> list[tuple[Holder, int]]:
        counted.append(arguments[1].name)  # type: ignore[attr-defined]
        return count(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(held_gpus, "held", noted)
    tables, (first, second, *_) = Tables(), versions(3)
    holders(first, wanted(gpus=8), tables)
    counted.clear()
    holders(first, wanted(gpus=64), tables)  # of the same kind
    assert counted == []
    moved = {name for name in second.nodes if second.nodes[name] is not first.nodes.get(name)}
    holders(second, wanted(gpus=8), tables)
    assert {*counted} <= moved


def views_alive() -> int:
    gc.collect()
    return sum(type(each) is NodeView for each in gc.get_objects())


def test_views_that_are_gone_are_let_go_whatever_jobs_tolerate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of request may keep a version of all nodes: some 8 MB of 5,000, and anybody may ask for many kinds."""
    monkeypatch.setattr(cache, "VIEWS", 5 * len(NODES))
    tables, clusters = Tables(), [*versions(2)]
    cluster, before = clusters[-1], views_alive()
    for number in range(40):
        pods = (pod(f"cpu-{name}", node=name, requests={"cpu": str(number + 1)}) for name in NODES)
        cluster = cluster.after([change(value) for made in pods if (value := from_document(made)) is not None])
        asked = replace(wanted(gpus=8), tolerations=(Toleration(f"key-{number}", "Exists", "", ""),))
        assert holders(cluster, asked, tables) == holders(cluster, asked, Tables())
    assert views_alive() - before <= 6 * len(NODES)


def test_it_remembers_no_holder_that_is_gone() -> None:
    counted: list[int] = []
    held, tables = HeldGpus(counted.append), Tables()
    for cluster in versions(1):
        ground = tables.ground(cluster, wanted(gpus=8))
        named = [(group, names) for group, _, names in ground.members()]
        found = held.on(cluster.nodes, partial(iter, named))
        assert all(gpus > 0 for gpus in found.values())
    assert sum(counted) < len(counted) * len(NODES) / 2
