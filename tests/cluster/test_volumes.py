"""Volumes on a real control plane: which nodes they leave, by the stock scheduler's own answer, and what becomes of
jobs whose claims the stock controllers bind, or do not.
"""

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.store.watched_kinds import from_document
from closeknit.placement.candidates.node_filter import admits
from closeknit.placement.values.request import request
from harness.local_cluster import LocalCluster
from harness.machines import node_object
from harness.operator_bed import ON_PLUGIN, PLUGIN_NODES, Bed

Manifest = dict[str, Any]
SEED = 20261125
BOUND, FREE, MADE = 16, 6, 4  # claims with a volume, with some to choose from, and with one that is yet to be made
FIRST, SECOND = PLUGIN_NODES
H200 = ON_PLUGIN["gpu"]
HOST, ZONE, OLD_ZONE = (
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/zone",
)
LABELS: dict[str, dict[str, str]] = {
    "vol-1": {ZONE: "a", "size": "8"},
    "vol-2": {ZONE: "b", OLD_ZONE: "c", "pool": "x"},
    "vol-3": {"pool": "y"},
    "vol-4": {OLD_ZONE: "a", "size": "9"},
}
NO_PROVISIONER = "kubernetes.io/no-provisioner"


def volume(name: str, *, terms: list[Manifest] | None = None, labels: Manifest | None = None, **spec: Any) -> Manifest:
    affinity = {} if terms is None else {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "capacity": {"storage": "10Gi"},
            "hostPath": {"path": f"/data/{name}"},
            **affinity,
            **spec,
        },
    }


def claim(name: str, namespace: str, *, storage_class: str = "", **spec: Any) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "5Gi"}},
            "storageClassName": storage_class,
            **spec,
        },
    }


def storage_class(name: str, provisioner: str = NO_PROVISIONER, **fields: Any) -> Manifest:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
        **fields,
    }


def on(*names: str, key: str = HOST) -> list[Manifest]:
    return [{"matchExpressions": [{"key": key, "operator": "In", "values": list(names)}]}]


def using(*claims: str) -> Manifest:
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
    container = {"name": "trainer", "image": "registry.example/train:1"}
    return {"spec": {"containers": [container], "volumes": volumes}}


def _term(chance: Random) -> Manifest:
    term: Manifest = {}
    if chance.random() < 0.9:
        term["matchExpressions"] = [_requirement(chance) for _ in range(chance.randint(1, 2))]
    if chance.random() < 0.2:
        operator = chance.choice(["In", "NotIn"])
        term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": [chance.choice(list(LABELS))]}]
    return term


def _requirement(chance: Random) -> Manifest:
    operator = chance.choice(["In", "In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
    amount = {"In": chance.randint(1, 3), "NotIn": chance.randint(1, 3), "Gt": 1, "Lt": 1}.get(operator, 0)
    key = chance.choice([HOST, ZONE, "pool", "size"])
    some = {HOST: list(LABELS), ZONE: ["a", "b", "c"], "pool": ["x", "y"], "size": ["8", "9"]}[key]
    return {"key": key, "operator": operator, "values": [chance.choice(some) for _ in range(amount)]}


def _zones(chance: Random) -> Manifest:
    keys = [key for key in (ZONE, OLD_ZONE) if chance.random() < 0.25]
    return {key: "__".join(chance.sample("abc", k=chance.randint(1, 2))) for key in keys}


def storage(namespace: str) -> tuple[list[Manifest], list[str]]:
    """Volumes, classes and claims of every kind, each claim of WaitForFirstConsumer once for each node, for it is bound
    by the first Pod that has it; and what the claims of one kind are called."""
    chance = Random(SEED)  # noqa: S311 - nothing secret
    objects: list[Manifest] = []
    kinds: list[str] = []
    for number in range(BOUND):
        name = f"bound-{number}"
        terms = None if chance.random() < 0.2 else [_term(chance) for _ in range(chance.randint(1, 3))]
        reference: Manifest = {"claimRef": {"namespace": namespace, "name": name}}
        objects += [volume(f"v-{name}", terms=terms, labels=_zones(chance), **reference), claim(name, namespace)]
        kinds.append(name)
    for number in range(FREE + MADE):
        kind = f"waits-{number}"
        kinds.append(kind)
        is_made = number >= FREE
        zones = {"key": ZONE, "values": chance.sample("abc", k=2)}
        allowed = (
            {"allowedTopologies": [{"matchLabelExpressions": [zones]}]} if is_made and chance.random() < 0.8 else {}
        )
        disks: list[Manifest] = [
            {
                "terms": [_term(chance)] if chance.random() < 0.8 else None,
                "labels": {"tier": chance.choice(["fast", "slow"])},
                "capacity": {"storage": chance.choice(["2Gi", "10Gi", "10Gi"])},
                "accessModes": [chance.choice(["ReadWriteMany", "ReadWriteMany", "ReadWriteOnce"])],
            }
            for _ in range(chance.randint(1, 3))
        ]
        selector = {"selector": {"matchLabels": {"tier": "fast"}}} if chance.random() < 0.3 else {}
        for node in LABELS:
            name = f"{kind}-{node}"
            objects.append(storage_class(name, "disk.example.com" if is_made else NO_PROVISIONER, **allowed))
            objects += [volume(f"v-{name}-{each}", storageClassName=name, **disk) for each, disk in enumerate(disks)]
            objects.append(claim(name, namespace, storage_class=name, **selector))
    return objects, kinds


@pytest.fixture
def nodes(local_cluster: LocalCluster) -> Iterator[list[Manifest]]:
    """Four labelled nodes."""
    local_cluster.apply(*(node_object(name, "hgx-h200", plugin=True, labels=LABELS[name]) for name in LABELS))

    def seen() -> list[Manifest] | None:
        items = [local_cluster.get("node", name) for name in LABELS]
        return None if any(item["spec"].get("taints") for item in items) else items  # until its first heartbeat

    yield local_cluster.wait_for(seen, "the nodes to take Pods")
    local_cluster.kubectl("delete", "nodes", *LABELS)


def test_our_answer_is_the_schedulers(local_cluster: LocalCluster, namespace: str, nodes: list[Manifest]) -> None:
    objects, kinds = storage(namespace)
    local_cluster.apply(*objects)
    try:
        wrong = _wrong(local_cluster, namespace, nodes, kinds)
        assert not wrong, [json.dumps(each) for each in objects if any(name in json.dumps(each) for name in wrong)]
    finally:
        for kind in ("pods", "persistentvolumeclaims"):
            local_cluster.delete(kind, namespace=namespace)
        for kind in ("persistentvolumes", "storageclasses"):  # all that there are: no other test makes any
            local_cluster.delete(kind)


def _wrong(cluster: LocalCluster, namespace: str, nodes: list[Manifest], kinds: list[str]) -> list[str]:
    """The claims of Pods of which the stock scheduler and we say otherwise."""

    def settled() -> list[Manifest] | None:
        claims = cluster.get("persistentvolumeclaims", namespace=namespace)["items"]
        free = cluster.get("persistentvolumes")["items"]
        is_bound = all(each["status"]["phase"] == "Bound" for each in claims if each["metadata"]["name"] in kinds)
        is_free = all(each["status"].get("phase") in {"Bound", "Available"} for each in free)
        return [*claims, *free, *cluster.get("storageclasses")["items"]] if is_bound and is_free else None

    seen = cluster.wait_for(settled, "claims to be bound", 60)
    ours = build(value for each in [*nodes, *seen] if (value := from_document(each)))
    named = {
        f"{kind}.{node}": kind if kind.startswith("bound") else f"{kind}-{node}" for kind in kinds for node in LABELS
    }
    cluster.apply(
        *(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {**using(claim)["spec"], "nodeSelector": {HOST: name.rpartition(".")[2]}},
            }
            for name, claim in named.items()
        )
    )

    def verdicts() -> dict[str, bool] | None:
        found: dict[str, bool] = {}
        claims = {each["metadata"]["name"]: each for each in cluster.get("pvc", namespace=namespace)["items"]}
        for pod in cluster.get("pods", namespace=namespace)["items"]:
            name = pod["metadata"]["name"]
            told = {each["type"]: each for each in pod.get("status", {}).get("conditions", [])}.get("PodScheduled", {})
            annotations = claims[named[name]]["metadata"].get("annotations", {})
            is_taken = bool(pod["spec"].get("nodeName")) or "volume.kubernetes.io/selected-node" in annotations
            if is_taken or told.get("reason") == "Unschedulable":
                found[name] = is_taken
        return found if len(found) == len(named) else None

    theirs = cluster.wait_for(verdicts, "the scheduler's verdict on every Pod", timeout_s=90)
    assert 0.2 < sum(theirs.values()) / len(theirs) < 0.8  # neither says the same of all
    return [name for name, claim in named.items() if theirs[name] is not _admits(ours, namespace, claim, name)]


def _admits(cluster: Cluster, namespace: str, claim: str, pod: str) -> bool:
    job = TrainingJob.parse(
        {
            "metadata": {"name": "train", "namespace": namespace, "uid": "u"},
            "spec": {"gpus": 8, "template": using(claim)},
        }
    )
    found = cluster.volumes_of(job)
    wanted = request(JobKey(namespace, "train"), job.spec, found.required)
    return found.unavailable is None and admits(cluster.nodes[pod.rpartition(".")[2]], wanted)


@pytest.fixture
def made(bed: Bed) -> Iterator[list[tuple[str, str]]]:
    """Kind and name of what a story makes for the whole cluster: it goes with it."""
    found: list[tuple[str, str]] = []
    yield found
    for kind, name in found:
        bed.cluster.delete(kind, name)


def make(bed: Bed, made: list[tuple[str, str]], *objects: Manifest) -> None:
    made += [
        (each["kind"].lower(), each["metadata"]["name"]) for each in objects if "namespace" not in each["metadata"]
    ]
    bed.cluster.apply(*objects)


def bound(bed: Bed, name: str) -> bool:
    return bool(bed.cluster.get("pvc", name, bed.namespace)["status"].get("phase") == "Bound")


def test_a_job_goes_to_its_disk_at_the_first_attempt(bed: Bed, made: list[tuple[str, str]]) -> None:
    """Of two equal nodes the first by name is taken, unless the disk is elsewhere."""
    reference: Manifest = {"claimRef": {"namespace": bed.namespace, "name": "data"}}
    make(bed, made, volume(f"disk-{bed.namespace}", terms=on(SECOND), **reference), claim("data", bed.namespace))
    bed.cluster.wait_for(lambda: bound(bed, "data"), "the claim to be bound")
    bed.submit(gpus=8, gpu=H200, template=using("data"))
    status = bed.wait_for_state("Running")
    assert (bed.nodes_of_pods(), status.get("attempts", [])) == ([SECOND], [])


def test_a_job_waits_for_its_claim_without_holding_anything(bed: Bed, made: list[tuple[str, str]]) -> None:
    bed.submit(gpus=16, gpu=H200, template=using("data"))
    assert bed.wait_for_reason("VolumeUnavailable")["message"] == (
        f"PersistentVolumeClaim data is not there: create it in namespace {bed.namespace}; it holds nothing, and "
        "starts as soon as that is mended"
    )
    assert bed.job()["status"].get("placement") is None
    assert (bed.names("pods"), bed.names("services")) == ([], [])
    reference: Manifest = {"claimRef": {"namespace": bed.namespace, "name": "data"}}  # else it is bound within 15 s
    make(bed, made, volume(f"nfs-{bed.namespace}", **reference), claim("data", bed.namespace))
    status = bed.wait_for_state("Running")
    assert (bed.nodes_of_pods(), status.get("attempts", [])) == ([FIRST, SECOND], [])


def test_a_claim_that_waits_for_its_pod_is_bound_where_there_is_a_disk(bed: Bed, made: list[tuple[str, str]]) -> None:
    local = f"local-{bed.namespace}"
    make(
        bed,
        made,
        storage_class(local),
        volume(f"{local}-small", terms=on(FIRST), storageClassName=local, capacity={"storage": "1Gi"}),
        volume(f"{local}-large", terms=on(SECOND), storageClassName=local),
        claim("data", bed.namespace, storage_class=local),
    )
    bed.submit(gpus=8, gpu=H200, template=using("data"))
    status = bed.wait_for_state("Running")
    assert (bed.nodes_of_pods(), status.get("attempts", [])) == ([SECOND], [])
    assert bound(bed, "data")
