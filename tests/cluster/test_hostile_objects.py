"""What a tenant with the role `edit` may store, and what no decoder can read: it costs its author, and nobody else."""

import json
from typing import Any

from harness.local_cluster import is_running
from harness.machines import notebook
from harness.operator_bed import DRA_NODES, ON_PLUGIN, Bed

LEVELS = 1200  # more than Python's decoders take; an API server takes 10,000


def nested(document: dict[str, Any]) -> str:
    """The document's JSON with so many lists inside each other in the place of the text `ODD`."""
    return json.dumps(document).replace('"ODD"', "[" * LEVELS + "]" * LEVELS)


def create(bed: Bed, path: str, document: dict[str, Any]) -> None:
    bed.cluster.kubectl("create", "--raw", path, "--filename=-", stdin=nested(document))


def deep_job(bed: Bed, name: str) -> None:
    container = {"name": "trainer", "image": "registry.example/train:1", "odd": "ODD"}
    job = {
        "apiVersion": "closeknit.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": bed.namespace},
        "spec": {"gpus": 8, "template": {"spec": {"containers": [container]}}},
    }
    create(bed, f"/apis/closeknit.dev/v1alpha1/namespaces/{bed.namespace}/trainingjobs", job)


def deep_claim(bed: Bed, claim: dict[str, Any]) -> None:
    opaque = {"driver": "any.example", "parameters": {"odd": "ODD"}}
    claim["metadata"]["namespace"] = bed.namespace
    claim["spec"]["devices"]["config"] = [{"opaque": opaque}]
    create(bed, f"/apis/resource.k8s.io/v1/namespaces/{bed.namespace}/resourceclaims", claim)


def shown(bed: Bed, kind: str, name: str, field: str) -> str:
    """One field of an object whose JSON Python cannot read either."""
    where = (f"--namespace={bed.namespace}", f"--output=jsonpath={{{field}}}")
    return bed.cluster.kubectl("get", kind, name, *where)


def wait_for_refusal(bed: Bed, name: str) -> None:
    words = "this version cannot read it: it is nested deeper than 100 levels"
    bed.cluster.wait_for(lambda: shown(bed, "trainingjob", name, ".status.pending.message") == words, "the refusal")


def test_objects_nested_too_deeply_stop_neither_the_operator_nor_anybodys_job(bed: Bed) -> None:
    log = bed.cluster.directory / "logs" / "operator.log"
    begun_with = bed.pid
    bed.submit("before", **ON_PLUGIN)
    bed.wait_for_state("Running", "before")
    claim, pod = notebook(DRA_NODES[0], [0, 1])
    name = claim["metadata"]["name"]
    deep_claim(bed, claim)
    bed.cluster.apply({**pod, "metadata": {**pod["metadata"], "namespace": bed.namespace}})
    bed.cluster.wait_for(lambda: shown(bed, "resourceclaim", name, ".status.allocation") != "", "the claim's GPUs")
    try:
        deep_job(bed, "deep")
        wait_for_refusal(bed, "deep")
        beside(bed, "beside")
        assert bed.pid == begun_with and is_running(begun_with)
        bed.restart()
        deep_job(bed, "deep-too")
        wait_for_refusal(bed, "deep-too")
        beside(bed, "after-a-restart")
        assert is_running(bed.pid)
        assert shown(bed, "trainingjob", "before", ".status.state") == "Running"
        assert shown(bed, "trainingjob", "before", ".status.attempt") == "1"
        assert "Traceback" not in log.read_text()
    finally:
        bed.delete("pod", name)
        bed.delete("resourceclaim", name)


def beside(bed: Bed, name: str) -> None:
    """A job gets the other node's GPUs at once: a claim that is nested too deeply counts for what it holds."""
    bed.submit(name, gpus=8, gpu={"binding": "DRA"})
    bed.wait_for_state("Running", name)
    assert shown(bed, "trainingjob", name, ".status.placement.nodes[*].name") == DRA_NODES[1]
    assert shown(bed, "trainingjob", name, ".status.attempt") == "1"
    bed.cluster.kubectl("delete", "trainingjob", name, f"--namespace={bed.namespace}")
    bed.cluster.wait_for(lambda: not [pod for pod in bed.names("pods") if pod.startswith(name)], "its Pods to be gone")
