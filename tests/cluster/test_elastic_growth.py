"""An elastic gang grows in its Pods on a real control plane, with the operator killed between its writes; and what the
chart's policy lets the operator change for that."""

import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest

from closeknit.api.names import UNRESTRICTED_TEMPLATES_LABEL
from closeknit.lifecycle.status.conditions import timestamp
from cluster.test_fence import CHANGES, refusal
from harness.chart import NAMESPACE, wait_for_policies
from harness.gang_kubelets import OPTIONS, RESTARTS, allow_restarts_in_place, begin_run
from harness.install import OPERATOR
from harness.operator_bed import ON_DRA, ON_PLUGIN, Bed, standing

PLUGIN, DRA = ("gpu-1", "gpu-2", "gpu-3"), ("gpu-4", "gpu-5", "gpu-6")
BOTH = pytest.mark.parametrize("spec", [pytest.param(ON_PLUGIN, id="plugin"), pytest.param(ON_DRA, id="DRA")])
STAY, ADDED = [f"train-a1-worker-{index:05d}" for index in range(2)], "train-a1-worker-00002-r1"
SIZE = "/metadata/annotations/closeknit.dev~1size"
serials = itertools.count()


class Site(Bed):
    """Three nodes of each binding, which can start Pods again in place."""

    options: ClassVar[tuple[str, ...]] = OPTIONS

    def annotation(self, pod: str) -> str | None:
        found: str | None = self.cluster.get("pod", pod, self.namespace)["metadata"]["annotations"].get(
            "closeknit.dev/size"
        )
        return found

    def train_pods(self) -> list[str]:
        return [name for name in self.live_pods() if name.startswith("train-")]


@pytest.fixture(scope="module")
def running() -> Iterator[Site]:
    with standing(Site, PLUGIN, DRA) as site:
        allow_restarts_in_place(site.cluster, (*PLUGIN, *DRA))
        site.restart()  # so that it has seen that
        yield site


@pytest.fixture
def site(running: Site) -> Iterator[Site]:
    running.begin(f"growth-{next(serials)}", **{UNRESTRICTED_TEMPLATES_LABEL: "true"})
    yield running
    running.cluster.delete("trainingjobs", namespace=running.namespace)
    running.cluster.kubectl("delete", "pods", "--all", f"--namespace={running.namespace}", "--force")
    running.cluster.delete("namespace", running.namespace)


def long_ago() -> str:
    return timestamp(datetime.now(UTC) - timedelta(minutes=6))


def small(site: Site, spec: dict[str, Any]) -> None:
    """A job that runs on two nodes of three, and room for all of it since long ago."""
    site.submit("other", **{**spec, "gpus": 8})
    site.wait_for_state("Running", "other")
    site.submit(**{**spec, "gpus": 24}, **RESTARTS, elastic={"minGPUs": 8})
    site.wait_for_reason("InsufficientGPUs")
    pending = {"status": {"pending": {"since": long_ago(), "queuedSince": long_ago()}}}
    site.cluster.patch("trainingjob", "train", pending, site.namespace, subresource="status")
    site.wait_for_state("Running")
    begin_run(site.cluster, site.namespace, STAY, 0)
    assert [site.annotation(pod) for pod in STAY] == ["2 16", None]
    site.delete("trainingjob", "other")
    site.cluster.wait_for(lambda: site.job()["status"]["placement"].get("room"), "room to be told", 90)


def let_grow(site: Site) -> None:
    room = {"status": {"placement": {"room": {"gpus": 24, "since": long_ago()}}}}
    site.cluster.patch("trainingjob", "train", room, site.namespace, subresource="status")


def is_refused(site: Site) -> bool:
    return "refused" in site.job()["status"]["placement"].get("room", {})


def has_grown(site: Site) -> bool:
    return [each["reason"] for each in site.job()["status"].get("attempts", [])] == ["Grown"]


def hold(site: Site, operation: str, expression: str, message: str) -> None:
    """A policy of the site about Pods of the namespace."""
    name, admission = f"{operation.lower()}-{site.namespace}", "admissionregistration.k8s.io/v1"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": ["pods"]}
    policy = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": expression, "message": message}],
    }
    selector = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": site.namespace}}}
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": selector}
    for kind, body in (("ValidatingAdmissionPolicy", policy), ("ValidatingAdmissionPolicyBinding", binding)):
        site.cluster.apply({"apiVersion": admission, "kind": kind, "metadata": {"name": name}, "spec": body})


@BOTH
def test_its_pods_stay_though_the_operator_is_killed_meanwhile(site: Site, spec: dict[str, Any]) -> None:
    small(site, spec)
    uids = [site.cluster.get("pod", pod, site.namespace)["metadata"]["uid"] for pod in STAY]
    before = len(site.writes())
    let_grow(site)
    site.cluster.wait_for(lambda: has_grown(site), "the job to grow")
    site.restart()
    site.cluster.wait_for(lambda: site.annotation(STAY[0]) == "3 24", "the Pods to be told")
    site.restart()
    site.cluster.wait_for(lambda: site.train_pods() == [*STAY, ADDED], "the new Pod")
    assert site.job()["status"]["placement"]["swapping"]
    begin_run(site.cluster, site.namespace, [*STAY, ADDED], 1)
    status = site.wait_for_state("Running")
    assert [site.cluster.get("pod", pod, site.namespace)["metadata"]["uid"] for pod in STAY] == uids
    (end,) = status["attempts"]
    assert (end["inPlace"], end["charged"], status["attempt"], status["restarts"]) == (True, False, 1, 1)
    placement = status["placement"]
    assert (placement["run"], placement["replaced"], "gpus" in placement) == (1, {"2": 1}, False)
    assert site.told().count("Grown") == 1
    writes = [f"{each.verb} {each.resource}" for each in site.writes()[before:]]
    made = {"create pods", "patch pods", "delete pods"}
    assert sorted(each for each in writes if each in made) == ["create pods", "patch pods"]


def test_where_a_policy_keeps_the_size_from_them_all_pods_are_new(site: Site) -> None:
    small(site, ON_PLUGIN)
    same = (
        "object.metadata.?annotations[?'closeknit.dev/size'] == oldObject.metadata.?annotations[?'closeknit.dev/size']"
    )
    hold(site, "UPDATE", same, "no size")
    here = f"--namespace={site.namespace}"
    token = site.cluster.service_account_kubeconfig(NAMESPACE, OPERATOR)
    patch = [{"op": "add", "path": SIZE, "value": "9 72"}]
    tries = ("patch", "pod", STAY[0], here, "--dry-run=server", "--type=json", f"--patch={json.dumps(patch)}")
    site.cluster.wait_for(lambda: refusal(site, token, *tries) == "no size", "the policy to hold")
    let_grow(site)
    new = [f"train-a2-worker-{index:05d}" for index in range(3)]
    site.cluster.wait_for(lambda: site.train_pods() == new, "new Pods")
    begin_run(site.cluster, site.namespace, new, 0)
    status = site.wait_for_state("Running")
    assert (status["attempt"], [each["reason"] for each in status["attempts"]]) == (2, ["Grown"])


def refuse_added_pods(site: Site) -> None:
    """A policy that lets dry runs pass, in force."""
    hold(site, "CREATE", "request.dryRun || !object.metadata.name.endsWith('-r1')", "no Pod of the night")
    container = {"name": "c", "image": "registry.example/c:1"}
    metadata = {"name": "probe-r1", "namespace": site.namespace}
    pod = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}})

    def holds() -> bool:
        made = site.cluster.kubectl("create", "--filename=-", "--output=name", stdin=pod, check=False)
        if made:
            site.cluster.kubectl("delete", "pod", "probe-r1", f"--namespace={site.namespace}", "--force")
        return not made

    site.cluster.wait_for(holds, "the policy to hold")


@BOTH
def test_a_growth_that_is_refused_after_its_dry_run_is_taken_back(site: Site, spec: dict[str, Any]) -> None:
    small(site, spec)
    before = site.job()["status"]
    refuse_added_pods(site)
    let_grow(site)
    site.cluster.wait_for(lambda: is_refused(site), "the refusal to be told")
    site.restart()
    status = site.wait_for_state("Running")
    same = ("attempt", "attempts", "restarts", "startTime")
    assert [status.get(field) for field in same] == [before.get(field) for field in same]
    placed = {**status["placement"], "room": None}
    assert placed == {**before["placement"], "room": None}
    assert "no Pod of the night" in status["placement"]["room"]["refused"]
    assert (site.train_pods(), site.annotation(STAY[0])) == (STAY, "2 16")
    site.cluster.wait_for(lambda: "ResizeRefused" in site.told(), "its Event")
    made = f"create-{site.namespace}"
    for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
        site.cluster.kubectl("delete", kind, made)
    site.cluster.wait_for(lambda: bool(grown_again(site)), "it to grow once that is gone", 90)
    begin_run(site.cluster, site.namespace, [*STAY, ADDED], 1)
    status = site.wait_for_state("Running")
    assert (status["attempt"], status["restarts"], status["placement"]["run"]) == (1, 1, 1)


def grown_again(site: Site) -> bool:
    """Whether the added Pod is there. Its room is said to have been there for long, again and again: the policy is out
    of force by and by."""
    if site.train_pods() == [*STAY, ADDED]:
        return True
    if not site.job()["status"]["placement"].get("swapping"):
        let_grow(site)
        site.restart()  # which forgets that it was refused
    return False


def test_node_rank_0_alone_may_be_told_the_size_and_nothing_else_with_it(site: Site) -> None:
    wait_for_policies(site.cluster, "gpu-1")
    token = site.cluster.service_account_kubeconfig(NAMESPACE, OPERATOR)
    small(site, ON_PLUGIN)
    here = f"--namespace={site.namespace}"
    gpus = "/metadata/annotations/closeknit.dev~1gpus"

    def tried(pod: str, *values: tuple[str, Any]) -> str:
        patch = [{"op": "add", "path": path, "value": value} for path, value in values]
        how = ("--dry-run=server", "--type=json", f"--patch={json.dumps(patch)}")
        return refusal(site, token, "patch", "pod", pod, here, *how)

    assert (tried(STAY[0], (SIZE, "3 24")), tried(STAY[1], (SIZE, "3 24"))) == ("", CHANGES)
    others: list[list[tuple[str, Any]]] = [
        [(SIZE, "3 GPUs")],
        [(gpus, "GPU-1")],
        [(SIZE, "3 24"), (gpus, "GPU-1")],
        [(SIZE, "3 24"), ("/metadata/annotations/more", "")],
        [(SIZE, "3 24"), ("/metadata/labels/app", "bank")],
        [(SIZE, "3 24"), ("/metadata/labels/closeknit.dev~1attempt", "")],
        [(SIZE, "3 24"), ("/spec/activeDeadlineSeconds", 1)],
        [(SIZE, "3 24"), ("/spec/containers/0/image", "registry.example/miner:1")],
    ]
    assert [tried(STAY[0], *each) for each in others] == [CHANGES] * len(others)
