"""Which nodes a template's required node affinity selects: our answer is that of the stock scheduler."""

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from closeknit.api.affinity import REQUIRED
from closeknit.api.names import JobKey
from closeknit.api.trainingjob import TrainingJobSpec
from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.store.watched_kinds import from_document
from closeknit.placement.candidates.node_filter import admits
from closeknit.placement.values.request import request
from harness.local_cluster import LocalCluster
from harness.machines import node_object
from harness.operator_bed import ON_PLUGIN, PLUGIN_NODES, Bed

SEED = 20261122
POD_SPECS = 30  # each as one Pod per node
LABELS: dict[str, dict[str, str]] = {
    "aff-1": {"pool": "a", "size": "8"},
    "aff-2": {"pool": "b", "size": "010", "zone": ""},
    "aff-3": {"size": "9223372036854775807", "zone": "1"},
    "aff-4": {"pool": "1", "size": "9223372036854775808"},
}
VALUES = ("", "a", "b", "1", "8", "9", "010", "9223372036854775807", "9223372036854775808")


def specs() -> Iterator[dict[str, Any]]:
    """Pod specs that select nodes in every way there is."""
    chance = Random(SEED)  # noqa: S311 - nothing secret
    yield {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}]}}}}
    for _ in range(POD_SPECS - 1):
        terms = [_term(chance) for _ in range(chance.randint(1, 3))]
        spec: dict[str, Any] = {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}
        if chance.random() < 0.2:
            spec["nodeSelector"] = {"pool": chance.choice("ab")}
        yield spec


def _term(chance: Random) -> dict[str, Any]:
    term: dict[str, Any] = {}
    if chance.random() < 0.9:
        term["matchExpressions"] = [_requirement(chance) for _ in range(chance.randint(0, 2))]
    if chance.random() < 0.3:
        operator = chance.choice(["In", "NotIn"])
        term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": [chance.choice(list(LABELS))]}]
    return term


def _requirement(chance: Random) -> dict[str, Any]:
    operator = chance.choice(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
    amount = {"In": chance.randint(1, 3), "NotIn": chance.randint(1, 3), "Gt": 1, "Lt": 1}.get(operator, 0)
    values = [chance.choice(VALUES) for _ in range(amount)]
    return {"key": chance.choice(["pool", "size", "zone"]), "operator": operator, "values": values}


@pytest.fixture
def nodes(local_cluster: LocalCluster) -> Iterator[Cluster]:
    """Four labelled nodes, as we see them."""
    local_cluster.apply(*(node_object(name, "hgx-h200", plugin=True, labels=LABELS[name]) for name in LABELS))

    def seen() -> Cluster | None:
        items = [local_cluster.get("node", name) for name in LABELS]
        if any(item["spec"].get("taints") for item in items):  # until its first heartbeat
            return None
        return build(value for item in items if (value := from_document(item)))

    yield local_cluster.wait_for(seen, "the nodes to take Pods")
    local_cluster.kubectl("delete", "nodes", *LABELS)


def test_our_answer_is_the_schedulers(local_cluster: LocalCluster, namespace: str, nodes: Cluster) -> None:
    asked = list(specs())
    container = {"name": "trainer", "image": "trainer:1"}
    local_cluster.apply(
        *(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"{number}-{name}", "namespace": namespace},
                "spec": {
                    **spec,
                    "nodeSelector": {**spec.get("nodeSelector", {}), "kubernetes.io/hostname": name},
                    "containers": [container],
                },
            }
            for number, spec in enumerate(asked)
            for name in LABELS
        )
    )

    def verdicts() -> dict[str, bool] | None:
        found: dict[str, bool] = {}
        for pod in local_cluster.get("pods", namespace=namespace)["items"]:
            conditions = pod.get("status", {}).get("conditions", [])
            told = {entry["type"]: entry for entry in conditions}.get("PodScheduled", {})
            if pod["spec"].get("nodeName") or told.get("reason") == "Unschedulable":
                found[pod["metadata"]["name"]] = bool(pod["spec"].get("nodeName"))
        return found if len(found) == len(asked) * len(LABELS) else None

    theirs = local_cluster.wait_for(verdicts, "the scheduler's verdict on every Pod", timeout_s=90)
    ours: dict[str, bool] = {}
    for number, spec in enumerate(asked):
        job = TrainingJobSpec.parse({"gpus": 8, "template": {"spec": {**spec, "containers": [container]}}})
        wanted = request(JobKey(namespace, "train"), job)
        ours |= {f"{number}-{name}": admits(nodes.nodes[name], wanted) for name in LABELS}
    assert 0.2 < sum(theirs.values()) / len(theirs) < 0.8  # neither says the same of all
    wrong = sorted(name for name in ours if ours[name] is not theirs[name])
    assert not wrong, [(name, json.dumps(asked[int(name.partition("-")[0])])) for name in wrong]


def test_a_job_runs_on_the_node_that_its_affinity_leaves(bed: Bed) -> None:
    first, second = PLUGIN_NODES
    names = {"key": "metadata.name", "operator": "NotIn", "values": [first]}
    rule = {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [names]}]}}
    container = {"name": "trainer", "image": "registry.example/train:1"}
    template = {"spec": {"containers": [container], "affinity": {"nodeAffinity": rule}}}
    bed.submit(**{**ON_PLUGIN, "gpus": 8}, template=template)
    bed.wait_for_state("Running")
    assert bed.nodes_of_pods() == [second]
