"""An elastic job shrinks for one of higher priority and grows again, on a real control plane, with the operator killed
meanwhile."""

import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from closeknit.lifecycle.status.conditions import timestamp
from harness.operator_bed import ON_DRA, ON_PLUGIN, Bed

BOTH = pytest.mark.parametrize("spec", [pytest.param(ON_PLUGIN, id="plugin"), pytest.param(ON_DRA, id="DRA")])
serials = itertools.count()


@pytest.fixture
def site(running: Bed) -> Iterator[Bed]:
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}}
    running.cluster.apply({**kind, "value": 1000})
    running.begin(f"elastic-{next(serials)}")
    yield running
    running.cluster.delete("trainingjobs", namespace=running.namespace)
    running.cluster.kubectl("delete", "pods", "--all", f"--namespace={running.namespace}", "--force")
    running.cluster.delete("namespace", running.namespace)


def ends(site: Bed) -> list[tuple[str, bool]]:
    return [(each["reason"], each["charged"]) for each in site.job()["status"].get("attempts", [])]


def world_sizes(site: Bed, pods: list[str]) -> set[str]:
    """What these Pods were told."""
    env = [
        entry for pod in pods for entry in site.cluster.get("pod", pod, site.namespace)["spec"]["containers"][0]["env"]
    ]
    return {entry["value"] for entry in env if entry["name"] == "CLOSEKNIT_WORLD_SIZE"}


def attempt(number: int, nodes: int) -> list[str]:
    return [f"train-a{number}-worker-{index:05d}" for index in range(nodes)]


def live(site: Bed) -> list[str]:
    return [name for name in site.live_pods() if name.startswith("train-")]


@BOTH
def test_it_shrinks_and_grows_once_though_the_operator_is_killed_meanwhile(site: Bed, spec: dict[str, Any]) -> None:
    site.submit(**spec, elastic={"minGPUs": 8})
    site.wait_for_state("Running")
    assert live(site) == attempt(1, 2)
    for pod in live(site):
        site.finish(pod, "late")  # it takes its time to end, as one does that writes a checkpoint
    site.submit("prod", **{**spec, "gpus": 8}, priorityClassName="urgent")
    site.cluster.wait_for(lambda: ends(site) == [("Shrunk", False)], "the job to shrink")
    site.restart()
    assert site.job()["status"]["placement"]["gpus"] == 8
    site.cluster.kubectl("delete", "pods", *attempt(1, 2), f"--namespace={site.namespace}", "--force")
    site.wait_for_state("Running", "prod")
    site.wait_for_state("Running")
    assert (live(site), world_sizes(site, attempt(2, 1))) == (attempt(2, 1), {"8"})
    wide = site.cluster.kubectl("get", "trainingjob", "train", f"--namespace={site.namespace}", "--output=wide")
    assert "runs with 8 of its 16 GPUs" in wide

    for pod in site.live_pods():
        if pod.startswith("prod-"):
            site.finish(pod, "succeed")
    site.cluster.wait_for(lambda: site.job()["status"]["placement"].get("room"), "room to be told")
    assert ends(site) == [("Shrunk", False)]
    site.restart()
    long_ago = timestamp(datetime.now(UTC) - timedelta(minutes=6))
    room = {"status": {"placement": {"room": {"gpus": 16, "since": long_ago}}}}
    site.cluster.patch("trainingjob", "train", room, site.namespace, subresource="status")
    site.cluster.wait_for(lambda: ends(site)[1:] == [("Grown", False)], "the job to grow")
    site.restart()
    site.cluster.wait_for(lambda: live(site) == attempt(3, 2), "its new Pods")
    site.wait_for_state("Running")
    status = site.job()["status"]
    assert (status["restarts"], status["attempt"], "gpus" in status["placement"]) == (2, 3, False)
    assert world_sizes(site, attempt(3, 2)) == {"16"}
    told = site.told()  # killed between a status and its Event it tells none
    assert max(told.count("Shrunk"), told.count("Grown")) <= 1


def refuse_second_attempts(site: Bed) -> None:
    """A policy of the site that came since, in force: no Pods of a second attempt."""
    name, admission = f"no-second-{site.namespace}", "admissionregistration.k8s.io/v1"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "!object.metadata.name.contains('-a2-')", "message": "not larger"}],
    }
    selector = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": site.namespace}}}
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": selector}
    for kind, body in (("ValidatingAdmissionPolicy", spec), ("ValidatingAdmissionPolicyBinding", binding)):
        site.cluster.apply({"apiVersion": admission, "kind": kind, "metadata": {"name": name}, "spec": body})
    container = {"name": "c", "image": "registry.example/c:1"}
    metadata = {"name": "probe-a2-0", "namespace": site.namespace}
    pod = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}})
    sent = ("create", "--filename=-", "--dry-run=server", "--output=name")
    site.cluster.wait_for(lambda: site.cluster.kubectl(*sent, stdin=pod, check=False) == "", "the policy to hold")


def test_it_runs_on_as_it_is_where_a_policy_refuses_the_larger_gang(site: Bed) -> None:
    site.submit("other", **{**ON_PLUGIN, "gpus": 8})
    site.wait_for_state("Running", "other")
    site.submit(**ON_PLUGIN, elastic={"minGPUs": 8})
    site.wait_for_reason("InsufficientGPUs")
    long_ago = timestamp(datetime.now(UTC) - timedelta(minutes=6))
    pending = {"status": {"pending": {"since": long_ago, "queuedSince": long_ago}}}
    site.cluster.patch("trainingjob", "train", pending, site.namespace, subresource="status")
    site.wait_for_state("Running")
    refuse_second_attempts(site)
    site.delete("trainingjob", "other")
    site.cluster.wait_for(lambda: site.job()["status"]["placement"].get("room"), "room to be told")
    room = {"status": {"placement": {"room": {"gpus": 16, "since": long_ago}}}}
    site.cluster.patch("trainingjob", "train", room, site.namespace, subresource="status")
    site.cluster.wait_for(lambda: site.job()["status"]["placement"]["room"].get("refused"), "the refusal to be told")
    status = site.job()["status"]
    assert (status["state"], status["attempt"], status["placement"]["gpus"]) == ("Running", 1, 8)
    site.cluster.wait_for(lambda: "ResizeRefused" in site.told(), "its Event")
    assert (live(site), ends(site), site.told().count("ResizeRefused")) == (attempt(1, 1), [], 1)
