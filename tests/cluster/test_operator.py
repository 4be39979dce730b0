"""The operator as a process: killed, at rest, watched, ended."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness.audit import AuditEvent
from harness.chart import NAMESPACE
from harness.install import OPERATOR, free_port, start_operator
from harness.local_cluster import is_running
from harness.operator_bed import ON_PLUGIN, PLUGIN_NODES, USER, Bed, status_of


def test_an_operator_that_was_killed_goes_on_and_one_at_rest_writes_nothing(bed: Bed) -> None:
    bed.submit(**ON_PLUGIN)
    bed.wait_for_state("Running")
    bed.submit("waiting", **ON_PLUGIN)
    bed.wait_for_reason("InsufficientGPUs", "waiting")
    bed.cluster.wait_for(lambda: len(bed.told()) == 2, "the Events")
    written = 8  # two Pods, a Service, two statuses, an Event; a status and an Event of the other
    bed.cluster.wait_for(lambda: len(bed.writes()) == written, "the audit log")
    bed.restart()
    # The cluster changes without meaning anything to a job: another decision, and nothing to write.
    cycles = "closeknit_scheduling_cycle_duration_seconds_count"
    decided = bed.metric(cycles)
    bed.cluster.kubectl("label", "node", "gpu-4", f"example.com/story={bed.namespace}", "--overwrite")
    bed.cluster.wait_for(lambda: bed.metric(cycles) > decided, "another decision")
    bed.submit("last", gpus=64)  # what the operator writes for it is logged after all that it wrote before
    bed.wait_for_reason("InsufficientGPUs", "last")
    bed.cluster.wait_for(lambda: len(bed.writes()) >= written + 2, "the audit log")
    assert [(event.resource, event.verb) for event in bed.writes()[written:]] == [
        ("trainingjobs", "update"),
        ("events", "create"),
    ]
    assert bed.writes()[written].name == "last"


def operator_writes(bed: Bed) -> list[AuditEvent]:
    return [event for event in bed.cluster.audit_events() if event.user == USER]


def test_kopf_writes_nothing(bed: Bed) -> None:
    bed.submit(gpus=8)
    bed.wait_for_state("Running")
    metadata = bed.job()["metadata"]
    assert "finalizers" not in metadata
    assert set(metadata["annotations"]) == {"kubectl.kubernetes.io/last-applied-configuration"}
    here = [event for event in operator_writes(bed) if event.namespace in {"", bed.namespace}]  # others steal its token
    kinds = {(event.verb, event.resource, event.subresource) for event in here}
    assert kinds <= {
        ("create", "events", ""),
        ("create", "pods", ""),
        ("create", "resourceclaims", ""),
        ("create", "selfsubjectaccessreviews", ""),
        ("create", "services", ""),
        ("delete", "pods", ""),
        ("delete", "services", ""),
        ("update", "trainingjobs", "status"),
    }


def notebook(bed: Bed, node: str) -> dict[str, Any]:
    """A Pod of somebody with one GPU, of which no agent tells which it is."""
    resources = {"limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "main", "image": "registry.example/notebook:1", "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "notebook", "namespace": bed.namespace},
        "spec": {"nodeSelector": {"kubernetes.io/hostname": node}, "containers": [container]},
    }


def test_a_gang_runs_beside_a_strangers_pod_and_metrics_tell_of_jobs_and_gpus(bed: Bed) -> None:
    """Behind NVSwitches any GPUs are as good as any others, so that it is enough to know how many are left."""
    shared, whole = PLUGIN_NODES
    bed.cluster.apply(notebook(bed, shared))
    bed.cluster.wait_for(lambda: bed.nodes_of_pods() == [shared], "the notebook to be bound")
    bed.submit(**{**ON_PLUGIN, "gpus": 15})
    status = bed.wait_for_state("Running")
    found = {node["name"]: (len(node["gpus"]), node["binding"]) for node in status["placement"]["nodes"]}
    assert found == {shared: (7, "BestEffort"), whole: (8, "WholeNode")}
    (verified,) = [each for each in status["conditions"] if each["type"] == "PlacementVerified"]
    assert (verified["status"], verified["message"]) == (
        "Unknown",
        f"nobody has told which GPUs the Pods got on {shared}",
    )
    bed.cluster.wait_for(lambda: bed.metric("closeknit_jobs", state="Running") == 1, "the gauges to be set")
    assert bed.metric("closeknit_gpus", state="held") == 16
    assert bed.metric("closeknit_gpus", state="free") == 16
    assert bed.metric("closeknit_placement_attempts_total", result="placed") >= 1
    assert bed.metric("closeknit_reflector_last_event_age_seconds", resource="nodes") < 70
    assert bed.get("/healthz") == bed.get("/readyz") == "ok"


def test_beyond_localhost_metrics_need_a_token_that_may_get_them(bed: Bed) -> None:
    port = free_port()
    kubeconfig = bed.cluster.service_account_kubeconfig(NAMESPACE, OPERATOR)
    # A second operator in a cluster without work for it: what it serves is all that counts.
    pid = bed.cluster.start_program(
        "second-operator",
        str(Path(sys.executable).parent / "closeknit-operator"),
        f"--kubeconfig={kubeconfig}",
        f"--metrics-address=:{port}",
    )
    try:
        bed.cluster.wait_for(lambda: status_of(port, "/readyz") == 200, "the second operator to be ready")
        where = f"--namespace={bed.namespace}"
        rule = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
        rbac = "rbac.authorization.k8s.io/v1"
        bed.cluster.apply(
            {"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": bed.namespace}, "rules": [rule]}
        )
        for name in ("scraper", "stranger"):
            bed.cluster.kubectl("create", "serviceaccount", name, where)
        account = f"--serviceaccount={bed.namespace}:scraper"
        bed.cluster.kubectl("create", "clusterrolebinding", bed.namespace, f"--clusterrole={bed.namespace}", account)
        tokens = {name: bed.cluster.kubectl("create", "token", name, where).strip() for name in ("scraper", "stranger")}
        assert status_of(port, "/metrics") == 401
        assert status_of(port, "/metrics", "nonsense") == 401
        assert status_of(port, "/metrics", tokens["stranger"]) == 403
        assert status_of(port, "/metrics", tokens["scraper"]) == 200
        bed.cluster.kubectl("delete", "clusterrole,clusterrolebinding", bed.namespace)
    finally:
        os.kill(pid, signal.SIGTERM)


@pytest.mark.alone
def test_sigterm_ends_it_at_once(bed: Bed) -> None:
    told = time.monotonic()
    os.kill(bed.pid, signal.SIGTERM)
    bed.cluster.wait_for(lambda: not is_running(bed.pid), "the operator to end")
    ended = time.monotonic()
    bed.pid = start_operator(bed.cluster, bed.port)
    # It waits for nothing. On a busy machine even that takes its time, though less than a start, 1.5 s, does.
    assert ended - told < max(1.5, time.monotonic() - ended)
