"""What the Pods of a gang cost the Cluster while it starts, told in views and not in time: a node is judged again when
one of its Pods takes something else of it, and not for every state that a Pod passes through."""

from collections.abc import Mapping
from typing import Any

import pytest

from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.store.watched_kinds import ClusterObject, change, from_document
from scenarios.manifests import Manifest, booked, node, node_topology, pod, training_job, uuids, worker
from scenarios.views import derived

WHOLE = {"nvidia.com/gpu": "8", "cpu": "4"}
NODES = ("gpu-1", "gpu-2", "gpu-3")


def decoded(*manifests: Manifest) -> list[ClusterObject]:
    return [value for manifest in manifests if (value := from_document(manifest)) is not None]


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return derived(monkeypatch)


def gang(**state: Any) -> list[Manifest]:
    return [
        worker(index=index, pin=name, gpus=uuids(name, *range(8)), requests=WHOLE, node=state.get("node") and name)
        | {"status": {"phase": state.get("phase", "Pending")}}
        for index, name in enumerate(NODES)
    ]


def followed(cluster: Cluster, manifests: list[Manifest]) -> Cluster:
    return cluster.after(map(change, decoded(*manifests)))


def test_a_gang_that_starts_has_each_node_judged_once(views: list[str]) -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "4"}}}]}}
    placement = booked(*((name, list(range(8))) for name in NODES))
    job = training_job(spec={"gpus": 24, "template": template}, placement=placement)
    machines = [each for name in NODES for each in (node(name), node_topology(name))]
    before = build(decoded(*machines, job))
    views.clear()

    made = followed(before, gang())
    assert views == []
    assert made.nodes is before.nodes, "a Pod in the place of its booking takes nothing more"

    bound = followed(made, gang(node=True))
    assert sorted(views) == sorted(NODES)
    running = followed(bound, gang(node=True, phase="Running"))
    assert len(views) == len(NODES)
    assert running.nodes is before.nodes
    assert {each.phase for each in running.pods.values()} == {"Running"}, "the Pods themselves are news"

    ended = followed(running, gang(node=True, phase="Succeeded"))
    assert len(views) == 2 * len(NODES)
    assert ended == build(decoded(*machines, job, *gang(node=True, phase="Succeeded")))


CHILD = worker(pin="gpu-1", gpus=uuids("gpu-1", 0), requests={"nvidia.com/gpu": "1", "cpu": "1"})


def with_metadata(manifest: Manifest, **changed: Any) -> Manifest:
    return manifest | {"metadata": manifest["metadata"] | changed}


OTHERWISE: Mapping[str, Manifest] = {
    "elsewhere": worker(gpus=uuids("gpu-1", 0), requests={"nvidia.com/gpu": "1", "cpu": "1"}, node="gpu-2"),
    "over": CHILD | {"status": {"phase": "Failed"}},
    "another Pod of its name": with_metadata(CHILD, uid="another"),
    "more room": worker(pin="gpu-1", gpus=uuids("gpu-1", 0), requests={"nvidia.com/gpu": "1", "cpu": "9"}),
    "a claim": worker(gpus=uuids("gpu-1", 0), requests={"nvidia.com/gpu": "1", "cpu": "1"}, claims=["mine"]),
    "another rank": with_metadata(CHILD, labels=CHILD["metadata"]["labels"] | {"closeknit.dev/index": "7"}),
    "another's": with_metadata(CHILD, ownerReferences=[]),
}


@pytest.mark.parametrize("now", OTHERWISE.values(), ids=OTHERWISE.keys())
def test_what_changes_a_view_is_seen(now: Manifest, views: list[str]) -> None:
    job = training_job(placement=booked(("gpu-1", [0]), binding="BestEffort"))
    others = [each for name in NODES for each in (node(name), node_topology(name))]
    objects = [*others, job, pod("notebook", node="gpu-1")]
    before = build(decoded(*objects, CHILD))
    views.clear()
    after = followed(before, [now])
    assert "gpu-1" in views
    assert after == build(decoded(*objects, now))
