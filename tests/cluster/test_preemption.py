"""Jobs that make room for one of higher priority, on a real control plane, with the operator killed meanwhile."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from harness.operator_bed import Bed, standing

PLUGIN, DRA = "gpu-1", "gpu-2"
ON_PLUGIN: dict[str, Any] = {"gpus": 8, "gpu": {"products": ["NVIDIA-H200"]}}
ON_DRA: dict[str, Any] = {"gpus": 8, "gpu": {"binding": "DRA"}}
BOTH = pytest.mark.parametrize("spec", [pytest.param(ON_PLUGIN, id="plugin"), pytest.param(ON_DRA, id="DRA")])
serials = itertools.count()


@pytest.fixture(scope="module")
def running() -> Iterator[Bed]:
    with standing(Bed, (PLUGIN,), (DRA,)) as bed:
        for name, value, policy in (("urgent", 1000, "PreemptLowerPriority"), ("patient", 1000, "Never")):
            kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
            bed.cluster.apply({**kind, "value": value, "preemptionPolicy": policy})
        yield bed


@pytest.fixture
def site(running: Bed) -> Iterator[Bed]:
    running.begin(f"preempts-{next(serials)}")
    yield running
    running.cluster.delete("trainingjobs", namespace=running.namespace)
    running.cluster.kubectl("delete", "pods", "--all", f"--namespace={running.namespace}", "--force")
    running.cluster.delete("namespace", running.namespace)


def ends(site: Bed, name: str) -> list[tuple[str, bool]]:
    return [(each["reason"], each["charged"]) for each in site.job(name)["status"].get("attempts", [])]


def watched(site: Bed, pod: str, since: str) -> list[dict[str, Any]]:
    """The Pod in each of its versions since, as a watch shows them."""
    asked = f"watch=1&resourceVersion={since}&fieldSelector=metadata.name={pod}&timeoutSeconds=2"
    lines = site.cluster.kubectl("get", f"--raw=/api/v1/namespaces/{site.namespace}/pods?{asked}").splitlines()
    return [event["object"] for event in map(json.loads, lines) if event["type"] != "BOOKMARK"]


def disruptions(pod: dict[str, Any]) -> list[dict[str, str]]:
    return [each for each in pod["status"].get("conditions", []) if each["type"] == "DisruptionTarget"]


@BOTH
def test_room_is_made_once_though_the_operator_is_killed_meanwhile(site: Bed, spec: dict[str, Any]) -> None:
    site.submit("low", **spec)
    site.wait_for_state("Running", "low")
    (pod,) = site.live_pods()
    site.finish(pod, "late")  # it takes its time to end, as one does that writes a checkpoint
    site.submit("patient", **spec, priorityClassName="patient")
    site.wait_for_reason("InsufficientGPUs", "patient")
    assert ends(site, "low") == []
    since = site.cluster.get("pod", pod, site.namespace)["metadata"]["resourceVersion"]
    site.submit("prod", **spec, priorityClassName="urgent")
    site.wait_for_reason("PreemptionPending", "prod")
    site.restart()
    site.cluster.wait_for(lambda: ends(site, "low") == [("Preempted", False)], "low to make room")
    site.restart()
    shown = watched(site, pod, since)
    told = [[(each["status"], each["reason"]) for each in disruptions(there)] for there in shown]
    assert told[-1] == [("True", "PreemptionByScheduler")]
    is_to_end = [there["spec"].get("activeDeadlineSeconds") == 1 for there in shown]
    assert told.index(told[-1]) < is_to_end.index(True), "who watches learns it before the Pod ends"
    site.submit("other", **spec, priorityClassName="urgent")
    site.wait_for_reason("InsufficientGPUs", "other")
    (awaited,) = site.job("prod")["status"]["placement"]["awaits"]
    assert (awaited["name"], awaited["attempt"]) == ("low", 1)
    assert site.live_pods() == [pod]
    site.cluster.kubectl("delete", "pod", pod, f"--namespace={site.namespace}", "--force")
    site.wait_for_state("Running", "prod")
    site.wait_for_reason("InsufficientGPUs", "low")
    assert site.live_pods() == ["prod-a1-worker-00000"]
    assert "awaits" not in site.job("prod")["status"]["placement"]
    assert (ends(site, "low"), ends(site, "prod")) == ([("Preempted", False)], [])
    assert site.told().count("Preempted") <= 1  # killed between a status and its Event it tells none


@pytest.mark.long
def test_an_elastic_job_that_cannot_have_all_gets_what_lower_ones_leave(site: Bed) -> None:
    """Long, for it waits a minute for all of its GPUs first."""
    site.submit("low", **ON_PLUGIN)
    site.submit("peer", **ON_DRA, priorityClassName="urgent")
    for name in ("low", "peer"):
        site.wait_for_state("Running", name)
    elastic = {"gpus": 16, "elastic": {"minGPUs": 8}, "topology": {"gpusPerNode": 8}}
    site.submit("prod", **elastic, priorityClassName="urgent")
    site.wait_for_reason("InsufficientGPUs", "prod")
    assert ends(site, "low") == []
    site.cluster.wait_for(lambda: ends(site, "low") == [("Preempted", False)], "low to make room", timeout_s=90)
    site.restart()
    site.wait_for_state("Running", "prod")
    placement = site.job("prod")["status"]["placement"]
    assert (placement["gpus"], [share["name"] for share in placement["nodes"]]) == (8, [PLUGIN])
    assert (ends(site, "peer"), ends(site, "prod")) == ([], [])
