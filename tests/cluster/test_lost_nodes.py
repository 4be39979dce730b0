"""Gangs whose nodes die, are cordoned, or do not take their Pods, on a real control plane with the stock scheduler.

A dead node is one that is not heard of any more; a finalizer stands for its kubelet, which never confirms that a Pod
is gone.
"""

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest

from closeknit.api.names import UNRESTRICTED_TEMPLATES_LABEL
from harness.gang_kubelets import OPTIONS, RESTARTS, allow_restarts_in_place, begin_run
from harness.operator_bed import ON_DRA, ON_PLUGIN, Bed, standing

PLUGIN = ("gpu-1", "gpu-2", "gpu-3")
DRA = ("gpu-4", "gpu-5", "gpu-6")
BOTH = pytest.mark.parametrize(
    ("spec", "nodes"), [pytest.param(ON_PLUGIN, PLUGIN, id="plugin"), pytest.param(ON_DRA, DRA, id="DRA")]
)
serials = itertools.count()


@dataclass
class Site(Bed):
    """A control plane with three nodes of each binding, whose nodes can be hurt."""

    options: ClassVar[tuple[str, ...]] = OPTIONS
    hurt: list[str] = field(default_factory=list)
    tainted: list[tuple[str, str]] = field(default_factory=list)

    def kill(self, node: str) -> None:
        """Nobody hears of its kubelet any more."""
        self.hurt.append(node)
        for pod in self.all("pods"):
            if pod["spec"].get("nodeName") == node:
                self.hold(pod["metadata"]["name"])
        self.cluster.kubectl("annotate", "node", node, "kwok.x-k8s.io/node-")
        conditions = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "stopped"}]
        self._say(node, conditions)

    def hold(self, pod: str) -> None:
        """The Pod's kubelet takes its time to say that it is gone."""
        self.change("pod", pod, {"metadata": {"finalizers": ["test.example/kubelet"]}})

    def confirm(self, pod: str) -> None:
        """The kubelet is back, and says that the Pod is gone."""
        self.change("pod", pod, {"metadata": {"finalizers": None}})

    def cordon(self, node: str) -> None:
        self.hurt.append(node)
        self.cluster.kubectl("cordon", node)

    def heal(self) -> None:
        for node, taint in self.tainted:
            self.cluster.kubectl("taint", "node", node, f"{taint}-")
        self.tainted.clear()
        for node in self.hurt:
            self.cluster.kubectl("uncordon", node)
            self._say(node, [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "started"}])
            self.cluster.kubectl("annotate", "node", node, "kwok.x-k8s.io/node=fake", "--overwrite")
        self.hurt.clear()

    def say(self, pod: str, **status: Any) -> None:
        """A kubelet says something of a Pod."""
        where = ("patch", "pod", pod, f"--namespace={self.namespace}", "--subresource=status")
        self.cluster.kubectl(*where, "--type=strategic", f"--patch={json.dumps({'status': status})}")

    def placed_on(self, name: str = "train") -> list[str]:
        return [node["name"] for node in self.job(name)["status"].get("placement", {}).get("nodes", [])]

    def ends(self, name: str = "train") -> list[tuple[str, bool]]:
        return [(each["reason"], each["charged"]) for each in self.job(name)["status"].get("attempts", [])]

    def wait(self, condition: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
        self.cluster.wait_for(condition, what, timeout_s)

    def _say(self, node: str, conditions: list[dict[str, str]]) -> None:
        patch = json.dumps({"status": {"conditions": conditions}})
        self.cluster.kubectl("patch", "node", node, "--subresource=status", "--type=strategic", f"--patch={patch}")


@pytest.fixture(scope="module")
def running() -> Iterator[Site]:
    with standing(Site, PLUGIN, DRA) as site:
        allow_restarts_in_place(site.cluster, (*PLUGIN, *DRA))
        site.restart()  # so that it has seen that
        yield site


@pytest.fixture
def site(running: Site) -> Iterator[Site]:
    running.begin(f"lost-{next(serials)}", **{UNRESTRICTED_TEMPLATES_LABEL: "true"})
    yield running
    running.heal()
    for pod in running.names("pods"):
        running.confirm(pod)
    running.cluster.delete("trainingjobs", namespace=running.namespace)
    running.cluster.kubectl("delete", "pods", "--all", f"--namespace={running.namespace}", "--force")
    running.cluster.delete("namespace", running.namespace)


@BOTH
def test_a_gang_runs_on_other_nodes_while_its_pod_on_a_dead_node_still_exists(
    site: Site, spec: dict[str, Any], nodes: tuple[str, ...]
) -> None:
    site.submit(**spec)
    site.wait_for_state("Running")
    assert site.placed_on() == [*nodes[:2]]
    site.kill(nodes[1])
    site.delete("pod", "train-a1-worker-00001")  # as the taint manager does after five minutes
    site.wait(lambda: site.job()["status"]["attempt"] == 2, "the next attempt")
    site.wait_for_state("Running")
    assert site.placed_on() == [nodes[0], nodes[2]]
    assert site.ends() == [("ChildDeleted", False)]
    assert site.live_pods() == ["train-a1-worker-00001", "train-a2-worker-00000", "train-a2-worker-00001"]

    # Back again, its GPUs are free only when the Pod is gone.
    site.heal()
    site.submit("next", **{**spec, "gpus": 8})
    assert "held by 1 job" in site.wait_for_reason("InsufficientGPUs", "next")["message"]
    site.confirm("train-a1-worker-00001")
    site.wait_for_state("Running", "next")
    assert site.placed_on("next") == [nodes[1]]


def test_a_node_out_of_service_is_replaced_at_once_and_the_rest_is_held(site: Site) -> None:
    """An administrator's word. It costs three statuses and their Events, and what new Pods need."""
    nodes = PLUGIN
    site.submit(**ON_PLUGIN)
    site.wait_for_state("Running")
    site.kill(nodes[0])
    site.submit("waiting", **{**ON_PLUGIN, "gpus": 16})
    site.wait_for_reason("InsufficientGPUs", "waiting")
    began = datetime.now(UTC)
    taint = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
    site.cluster.kubectl("taint", "node", nodes[0], taint)
    site.tainted.append((nodes[0], taint))
    site.wait(lambda: site.job()["status"]["attempt"] == 2, "the next attempt")
    site.wait_for_state("Running")
    assert site.placed_on() == [nodes[2], nodes[1]]
    assert site.ends() == [("NodeLost", False)]
    message = site.job()["status"]["attempts"][0]["message"]
    assert message == f"node {nodes[0]} has the taint node.kubernetes.io/out-of-service"
    assert site.job("waiting")["status"]["state"] == "Queued"
    own = [each for each in site.writes(since=began) if not each.name.startswith("waiting")]
    statuses = [each for each in own if each.resource == "trainingjobs"]
    pods = [each for each in own if each.resource == "pods"]
    assert len(statuses) == 3  # the end, the other node, that it runs
    assert [each.verb for each in pods if each.verb == "create"] == ["create"] * 2
    assert len(pods) <= 2 * 2  # each old one is stopped or deleted once


@BOTH
def test_pods_on_healthy_nodes_stay_and_one_new_pod_takes_the_place_of_the_lost_one(
    site: Site, spec: dict[str, Any], nodes: tuple[str, ...]
) -> None:
    """Three statuses, one Event, and for the lost node a Pod, its claim, the old one's farewell and deletion."""
    site.submit(**spec, **RESTARTS)
    site.wait_for_state("Running")
    lost, stays = "train-a1-worker-00000", "train-a1-worker-00001"  # node rank 0, where ranks meet
    first, second = site.placed_on()  # a node that other tests have lost twice is a lemon, and comes last
    (third,) = {*nodes} - {first, second}
    begin_run(site.cluster, site.namespace, [lost, stays], 0)
    uid = site.cluster.get("pod", stays, site.namespace)["metadata"]["uid"]
    site.kill(first)
    began = datetime.now(UTC)
    taint = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
    site.cluster.kubectl("taint", "node", first, taint)
    site.tainted.append((first, taint))
    site.wait(lambda: _phase(site, f"{lost}-r1") == "Running", "the new Pod to run")
    assert site.job()["status"]["state"] != "Running", "the others have not left the old run"
    begin_run(site.cluster, site.namespace, [f"{lost}-r1", stays], 1)
    site.wait_for_state("Running")
    status = site.job()["status"]
    assert site.placed_on() == [third, second]
    assert (status["attempt"], status["restarts"]) == (1, 1)
    assert (status["placement"]["run"], status["placement"]["replaced"]) == (1, {"0": 1})
    assert "swapping" not in status["placement"]
    (row,) = status["attempts"]
    assert (row["reason"], row["charged"], row["inPlace"]) == ("NodeLost", False, True)
    assert {*row["phases"]} == {"detect", "decide", "free", "bind", "start"}
    assert site.cluster.get("pod", stays, site.namespace)["metadata"]["uid"] == uid
    found = [f"{each.verb} {each.resource} {each.name}" for each in site.writes(since=began)]
    claim = [f"create resourceclaims {lost}-r1"] if spec is ON_DRA else []
    told = [each for each in found if "pods" in each or "resourceclaims" in each]
    deleted = f"delete pods {lost}"  # unless Kubernetes, which sees the taint as well, was first
    expected = [f"patch pods {lost}", f"create pods {lost}-r1", *claim]
    assert sorted(told) in (sorted(expected), sorted([*expected, deleted]))
    assert len(found) - len(told) == 4, found
    site.wait(lambda: _named(site) == [f"{lost}-r1", stays], "the host name of node rank 0 to mean the new Pod alone")


def _named(site: Site) -> list[str]:
    """The Pods that the job's Service names; their controller follows the Pods in its own time."""
    slices = site.cluster.get("endpointslices", namespace=site.namespace)["items"]
    return sorted(each["targetRef"]["name"] for part in slices for each in part.get("endpoints") or ())


def _phase(site: Site, pod: str) -> str:
    found = [each["status"].get("phase") for each in site.all("pods") if each["metadata"]["name"] == pod]
    return found[0] if found else ""


@pytest.mark.long
def test_a_kubelet_that_renews_its_lease_no_more_is_replaced_before_any_eviction(site: Site) -> None:
    """kwok renews the Leases of its nodes, but for one that somebody else has."""
    nodes = PLUGIN
    site.submit(**ON_PLUGIN)
    site.wait_for_state("Running")
    metadata = {"name": nodes[1], "namespace": "kube-node-lease"}
    spec = {"holderIdentity": "nobody", "leaseDurationSeconds": 864_000_000, "renewTime": "2026-11-25T10:00:00.000000Z"}
    site.cluster.apply({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec})
    try:
        site.kill(nodes[1])
        site.wait(lambda: site.job()["status"]["attempt"] == 2, "the next attempt", 90)
        site.wait_for_state("Running")
        assert site.placed_on() == [nodes[0], nodes[2]]
        assert site.ends() == [("NodeLost", False)]
        assert "has not renewed its Lease" in site.job()["status"]["attempts"][0]["message"]
    finally:
        site.cluster.kubectl("delete", "lease", nodes[1], "--namespace=kube-node-lease")


@BOTH
def test_a_gang_whose_node_is_cordoned_before_its_pod_is_bound_goes_elsewhere_at_once(
    site: Site, spec: dict[str, Any], nodes: tuple[str, ...]
) -> None:
    """Gates of the user's own hold the Pods, and so give time."""
    template = {"schedulingGates": [{"name": "test.example/hold"}], "containers": [{"name": "trainer", "image": "i"}]}
    site.submit(**spec, template={"spec": template})
    site.wait(lambda: len(site.names("pods")) == 2, "both Pods")
    site.cordon(nodes[1])
    site.wait(lambda: site.placed_on() == [nodes[0], nodes[2]], "other nodes")
    assert site.ends() == [("NodeChanged", False)]
    message = site.job()["status"]["attempts"][0]["message"]
    assert message.startswith(f"node {nodes[1]} takes no new Pod of the job: it has the taint node.kubernetes.io/unsch")


def test_a_gang_that_the_scheduler_refuses_for_another_reason_goes_elsewhere_after_half_a_minute(site: Site) -> None:
    """A host port that somebody else has is the scheduler's business alone."""
    nodes = PLUGIN
    port = {"hostPort": 7777, "containerPort": 7777}
    taken = {"name": "other", "image": "i", "ports": [port]}
    pod = {"name": "other", "namespace": site.namespace}
    hold = {"nodeName": nodes[1], "containers": [taken], "tolerations": [{"operator": "Exists"}]}
    site.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": pod, "spec": hold})
    template = {"spec": {"containers": [{"name": "trainer", "image": "i", "ports": [port]}]}}
    site.submit(**ON_PLUGIN, template=template)
    site.wait(lambda: site.placed_on() == [*nodes[:2]], "the first attempt")
    site.wait(lambda: site.placed_on() == [nodes[0], nodes[2]], "other nodes")
    site.wait_for_state("Running")
    (ended,) = site.job()["status"]["attempts"]
    assert (ended["reason"], ended["charged"], [each["name"] for each in ended["unfit"]]) == (
        "Unschedulable",
        False,
        [nodes[1]],
    )
    assert ended["message"].startswith(f"Pod train-a1-worker-00001 cannot be scheduled on node {nodes[1]}: 0/6 nodes ")
    assert "1 node(s) didn't have free ports for the requested pod ports" in ended["message"]
    site.wait_for_told("Placed", "Unschedulable", "Placed", "Restarted")


def test_a_node_that_refused_a_pod_is_named_where_no_other_is_left(site: Site) -> None:
    apart = [{"labelSelector": {"matchLabels": {"app": "other"}}, "topologyKey": "kubernetes.io/hostname"}]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}}
    for node in PLUGIN:
        pod = {"name": node, "namespace": site.namespace, "labels": {"app": "other"}}
        hold = {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}
        site.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": pod, "spec": hold})
    template = {"affinity": affinity, "containers": [{"name": "trainer", "image": "i"}]}
    site.submit(gpus=24, gpu={"products": ["NVIDIA-H200"]}, template={"spec": template})
    site.wait(lambda: bool(site.job()["status"].get("pending")), "the end of the first attempt")
    pending = site.wait_for_reason("InsufficientGPUs")
    assert "gpu-1, gpu-2, gpu-3 are avoided until " in pending["message"]
    assert "didn't match pod anti-affinity rules" in pending["message"]
    assert site.names("pods") == sorted(PLUGIN)


def test_a_succeeded_rank_whose_pod_is_removed_stays_succeeded(site: Site) -> None:
    site.submit(**ON_PLUGIN)
    site.wait_for_state("Running")
    site.finish("train-a1-worker-00001", "succeed")
    site.wait(lambda: site.job()["status"]["placement"].get("succeeded") == "1", "it to be stored")
    site.restart()
    site.cluster.kubectl("delete", "pod", "train-a1-worker-00001", f"--namespace={site.namespace}")
    site.finish("train-a1-worker-00000", "succeed")
    status = site.wait_for_state("Succeeded")
    assert (status["attempt"], site.ends()) == (1, [("Succeeded", False)])


def test_what_kubernetes_ends_is_not_charged(site: Site) -> None:
    """First an eviction through the API, as a drain does it, then the shutdown of a node."""
    site.submit(**ON_PLUGIN)
    site.wait_for_state("Running")
    site.hold("train-a1-worker-00001")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "train-a1-worker-00001"}}
    path = f"/api/v1/namespaces/{site.namespace}/pods/train-a1-worker-00001/eviction"
    site.cluster.kubectl("create", "--raw", path, "--filename=-", stdin=json.dumps(eviction))
    site.wait(lambda: site.job()["status"]["attempt"] == 2, "the next attempt")
    site.confirm("train-a1-worker-00001")
    site.wait_for_state("Running")
    shutdown = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": "shutdown"}
    site.say("train-a2-worker-00000", phase="Failed", reason="Terminated", conditions=[shutdown])
    site.wait(lambda: site.job()["status"]["attempt"] == 3, "the next attempt")
    site.wait_for_state("Running")
    assert site.ends() == [("Disrupted", False), ("Disrupted", False)]
