"""What a tenant with the role `edit` may store, and what no decoder can read: it costs its author, and nobody else."""

import json
import random
from pathlib import Path
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
        assert "Traceback" not in bed.said()
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


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1000


def large_job(bed: Bed, name: str, gpus: int, pod: dict[str, Any]) -> None:
    container = {"name": "trainer", "image": "registry.example/train:1", **pod.pop("container", {})}
    job = {
        "apiVersion": "closeknit.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": bed.namespace},
        "spec": {"gpus": gpus, "template": {"spec": {"containers": [container], **pod}}},
    }
    assert bed.cluster.writer.create(job).refusal == ""


def test_jobs_with_large_templates_that_wait_weigh_little_and_keep_nobody_waiting(bed: Bed) -> None:
    """Each within the limits and unlike the others; decoded they were 3.4 MB each, and ended the operator by the
    hundred."""
    before = resident_mb(bed.pid)
    for number in range(30):
        variables = [{"name": f"A{each}", "value": f"x{number}"} for each in range(8000)]
        large_job(bed, f"large-{number}", 4096, {"container": {"env": variables}})
    bed.wait_for_reason("InsufficientGPUs", "large-29")
    bed.submit("other", **ON_PLUGIN)
    bed.wait_for_state("Running", "other")
    assert resident_mb(bed.pid) - before < 45


def any_node_but(number: int) -> dict[str, Any]:
    """Names of 5,000 nodes that are nowhere, without order: they weigh 1.8 MiB, eight times their JSON and that."""
    names = [random.Random(number * 10_000 + each).randbytes(20).hex() for each in range(5000)]  # noqa: S311 - a test
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": names}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


def test_templates_beyond_a_namespaces_allowance_wait_and_are_read_when_their_turn_comes(bed: Bed) -> None:
    tenant, last = bed.namespace, 23
    bed.submit("first", **ON_PLUGIN)
    bed.wait_for_state("Running", "first")
    for number in range(last + 1):
        large_job(bed, f"large-{number:02}", 4096 if number < last else 8, any_node_but(number))
    told = bed.wait_for_reason("QuotaExceeded", f"large-{last}")
    assert f"namespace {tenant} that wait take 4" in told["message"]
    bed.wait_for_reason("InsufficientGPUs", "large-00")
    bed.begin(f"{tenant}-beside")
    bed.submit("other", gpus=8, gpu={"binding": "DRA"})
    bed.wait_for_state("Running", "other")
    bed.delete("trainingjob", "other")
    bed.cluster.wait_for(lambda: not bed.names("pods"), "the other one's Pods to be gone")
    bed.cluster.delete("namespace", bed.namespace)
    bed.namespace = tenant
    bed.restart()
    assert bed.job(f"large-{last}")["status"]["pending"]["reason"] == "QuotaExceeded"
    for number in range(8):
        bed.delete("trainingjob", f"large-{number:02}")
    bed.wait_for_state("Running", f"large-{last}")
