"""A job that waits for GPUs asks an autoscaler for nodes, on the real control plane with the real kind, and by Pods of
which the real scheduler decides. The autoscaler is played by the test: its answer, and nodes that come."""

import os
import signal
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest

from closeknit.api.names import PLACEHOLDER_PODS
from closeknit.api.objects import TrainingJob
from closeknit.lifecycle.capacity.capacity_manifests import placeholder, placeholder_names
from closeknit.lifecycle.capacity.gang_shape import GangShape
from harness.admission import creation_refusal
from harness.chart import NAMESPACE, wait_for_policies
from harness.foreign_crds import provisioning_crd
from harness.install import OPERATOR, start_agents
from harness.kubectl import KubectlError
from harness.machines import node_object
from harness.operator_bed import ON_PLUGIN_PROFILE, Bed, standing
from scenarios.manifests import training_job

Change = Callable[[dict[str, Any]], object]
SHAPE = GangShape(2, 8, "gpu-1")
EVERYBODY: dict[str, Any] = {"labelSelector": {}, "topologyKey": "kubernetes.io/hostname"}

IMAGE = "registry.example.com/closeknit/operator:0.1.0"  # as the chart is rendered
PLACEHOLDER = {"metadata": {"annotations": {"closeknit.dev/provisioning-class": "PlaceholderPods"}}}
CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"


@dataclass
class AskingBed(Bed):
    """Its jobs ask for nodes."""

    options: ClassVar[tuple[str, ...]] = (f"--provisioning-class={CLASS}", f"--placeholder-image={IMAGE}")
    chart: ClassVar[tuple[str, ...]] = ("--set=capacity.enabled=true",)
    agents: list[int] = field(default_factory=list)

    def begin_without(self, namespace: str, *nodes: str) -> None:
        """A story in which these nodes are to come: they and the jobs of its first try are gone."""
        self.begin(namespace)
        here = f"--namespace={namespace}"
        self.cluster.kubectl("delete", "trainingjobs,provisioningrequests", "--all", here)
        self.wait_for_nothing()
        for pid in self.agents:
            os.kill(pid, signal.SIGKILL)  # they would tell of them again; of other nodes they have told
        self.agents.clear()
        for kind in ("nodetopologies", "nodes"):
            self.cluster.kubectl("delete", kind, *nodes, "--ignore-not-found")

    def measure(self, *nodes: str) -> None:
        """Their agents tell of these nodes."""
        self.agents.append(start_agents(self.cluster, [{"name": each, "profile": ON_PLUGIN_PROFILE} for each in nodes]))


@pytest.fixture(scope="module")
def scaled() -> Iterator[AskingBed]:
    with standing(AskingBed, ("gpu-1",), ()) as bed:
        bed.cluster.apply(provisioning_crd())
        bed.cluster.wait_for(lambda: is_served(bed), "the kind to be served")
        bed.restart()  # which looks for kinds that were not served once a minute
        bed.begin("short")
        hard = {"requests.nvidia.com/gpu": "8"}
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpus", "namespace": "short"}}
        bed.cluster.apply({**quota, "spec": {"hard": hard}})
        bed.submit(gpus=24)
        bed.change("trainingjob", "train", PLACEHOLDER)
        yield bed


def is_served(bed: Bed) -> bool:
    try:
        return not bed.cluster.get("provisioningrequests")["items"]
    except KubectlError:
        return False


def told(bed: Bed) -> str:
    found: str = bed.job()["status"].get("pending", {}).get("message", "")
    return found


def test_nodes_are_asked_for_measured_and_used(scaled: AskingBed) -> None:
    bed = scaled
    bed.begin_without("scaled", "gpu-2")
    bed.submit(gpus=16)
    bed.wait_for_reason("InsufficientGPUs")
    # It asks half a minute later, and looks for who waits every five seconds.
    (asked,) = bed.cluster.wait_for(lambda: bed.all("provisioningrequests"), "the request", 60)
    assert (asked["spec"]["provisioningClassName"], asked["spec"]["podSets"][0]["count"]) == (CLASS, 2)
    name = asked["metadata"]["name"]
    template = bed.cluster.get("podtemplate", name, bed.namespace)
    assert template["metadata"]["ownerReferences"] == asked["metadata"]["ownerReferences"]
    (container,) = template["template"]["spec"]["containers"]
    assert container["resources"]["requests"]["nvidia.com/gpu"] == "8"

    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    answer = {
        "type": "Provisioned",
        "status": "True",
        "reason": "Provisioned",
        "message": "",
        "lastTransitionTime": now,
    }
    bed.cluster.patch(
        "provisioningrequest", name, {"status": {"conditions": [answer]}}, bed.namespace, subresource="status"
    )
    node: dict[str, Any] = node_object("gpu-2", ON_PLUGIN_PROFILE, plugin=True, rdma=8)
    bed.cluster.apply(node)
    assert not bed.job()["status"].get("placement")  # it is there, and nobody has measured it
    bed.measure("gpu-2")
    running = bed.wait_for_state("Running")
    assert [each["name"] for each in running["placement"]["nodes"]] == ["gpu-1", "gpu-2"]
    bed.cluster.wait_for(lambda: not bed.all("provisioningrequests"), "the request to be taken back")


def test_placeholders_are_bound_to_nodes_that_come_and_give_way_to_the_gang(scaled: AskingBed) -> None:
    bed = scaled
    bed.begin_without("placeholders", "gpu-3", "gpu-4")
    bed.submit(gpus=16)
    bed.change("trainingjob", "train", PLACEHOLDER)
    bed.wait_for_reason("InsufficientGPUs")
    bed.cluster.wait_for(lambda: len(bed.all("pods")) == 2, "its placeholders", 60)
    stand = bed.all("pods")
    assert [each["spec"]["priority"] for each in stand] == [-10, -10]
    assert all("-placeholder-" in each["metadata"]["name"] for each in stand)
    bed.cluster.wait_for(lambda: len(unschedulable(bed)) == 2, "the scheduler to find no node for them")

    bed.cluster.apply(*(node_object(name, ON_PLUGIN_PROFILE, plugin=True, rdma=8) for name in ("gpu-3", "gpu-4")))
    bed.cluster.wait_for(lambda: set(bed.nodes_of_pods()) == {"gpu-3", "gpu-4"}, "the scheduler to bind them")
    assert not bed.job()["status"].get("placement")  # nobody has measured the nodes
    bed.measure("gpu-3", "gpu-4")
    running = bed.wait_for_state("Running")
    assert [each["name"] for each in running["placement"]["nodes"]] == ["gpu-3", "gpu-4"]
    assert bed.names("pods") == ["train-a1-worker-00000", "train-a1-worker-00001"]


def test_a_placeholder_that_is_bound_on_a_spare_keeps_nobody_from_asking(scaled: AskingBed) -> None:
    """The scheduler takes a spare for free; no Pod can say which nodes it keeps off, else Karpenter would leave it
    out."""
    bed = scaled
    bed.begin_without("spared", "gpu-5", "gpu-6", "gpu-7")
    nodes = {name: node_object(name, ON_PLUGIN_PROFILE, plugin=True, rdma=8) for name in ("gpu-5", "gpu-6", "gpu-7")}
    for node in nodes.values():
        node["metadata"]["labels"]["pool"] = "spared"
    bed.cluster.apply(nodes["gpu-5"], nodes["gpu-6"])
    bed.measure("gpu-5", "gpu-6")
    bed.cluster.wait_for(lambda: {"gpu-5", "gpu-6"} <= measured(bed), "the agents")
    container = {"name": "trainer", "image": "registry.example/train:1"}
    template = {"spec": {"containers": [container], "nodeSelector": {"pool": "spared"}}}
    bed.submit("spared", gpus=8, spares=1, template=template)
    (spare,) = bed.wait_for_state("Running", "spared")["placement"]["spares"]
    bed.submit(gpus=8, template=template)
    bed.change("trainingjob", "train", PLACEHOLDER)
    bed.wait_for_reason("InsufficientGPUs")
    bed.cluster.wait_for(lambda: set(bed.nodes_of_pods()) == {"gpu-5", "gpu-6"}, "one on the spare", 60)
    bed.cluster.wait_for(lambda: len(unschedulable(bed)) == 1, "another one, for which no node is there")
    there = bed.names("pods")
    assert len(there) == 3

    bed.cluster.apply(nodes["gpu-7"])
    bed.cluster.wait_for(lambda: "gpu-7" in bed.nodes_of_pods(), "the scheduler to bind it")
    assert (bed.names("pods"), spare["name"] in bed.nodes_of_pods()) == (there, True)
    bed.measure("gpu-7")
    running = bed.wait_for_state("Running")
    assert [each["name"] for each in running["placement"]["nodes"]] == ["gpu-7"]
    bed.cluster.wait_for(lambda: len(bed.names("pods")) == 2, "its placeholders to be gone")


def measured(bed: Bed) -> set[str]:
    return {each["metadata"]["name"] for each in bed.cluster.get("nodetopologies")["items"]}


def unschedulable(bed: Bed) -> list[str]:
    """Pods for which an autoscaler would add nodes."""
    return [
        each["metadata"]["name"]
        for each in bed.all("pods")
        for condition in each["status"].get("conditions", ())
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable"
    ]


def test_a_quota_that_refuses_placeholders_is_told_and_keeps_none_of_them(scaled: AskingBed) -> None:
    bed = scaled
    bed.namespace = "short"
    bed.cluster.wait_for(lambda: "exceeded quota: gpus" in told(bed), "the refusal to be told", 90)
    assert "no nodes are asked for: the API server refuses a placeholder Pod for it" in told(bed)
    assert bed.all("pods") == []


def fields(**spec: Any) -> Change:
    return lambda body: body["spec"].update(spec)


def container(**changed: Any) -> Change:
    return lambda body: body["spec"]["containers"][0].update(changed)


def meta(**changed: Any) -> Change:
    return lambda body: body["metadata"].update(changed)


POWER = "a placeholder Pod has one container, of the operator's image, that waits and has no power and nothing mounted"
WAY = "a placeholder Pod gives way to all others, and goes at once"
OWNER = "a placeholder Pod has one owner, the TrainingJob of its label, whose name its own begins with"
MARKS = "a placeholder Pod has no other label and no annotation under closeknit.dev/, and no finalizers"
APART = "a placeholder Pod keeps away from other placeholder Pods alone"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param(lambda _: None, "", id="as it is made"),
        pytest.param(container(image="registry.example/other:1"), POWER, id="another image"),
        pytest.param(container(command=["sh"]), POWER, id="another program"),
        pytest.param(container(env=[{"name": "A", "value": "b"}]), POWER, id="an environment"),
        pytest.param(container(securityContext={"privileged": True}), POWER, id="power"),
        pytest.param(fields(hostNetwork=True), POWER, id="the host's network"),
        pytest.param(fields(volumes=[{"name": "v", "secret": {"secretName": "s"}}]), POWER, id="a Secret"),
        pytest.param(fields(automountServiceAccountToken=True), POWER, id="a token"),
        pytest.param(fields(priorityClassName=""), WAY, id="a priority of its own"),
        pytest.param(fields(terminationGracePeriodSeconds=600), WAY, id="a long end"),
        pytest.param(meta(ownerReferences=[]), OWNER, id="no owner"),
        pytest.param(meta(name="gone-placeholder-x"), OWNER, id="another name"),
        pytest.param(meta(finalizers=["example.com/stay"]), MARKS, id="a finalizer"),
        pytest.param(
            fields(affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [EVERYBODY]}}),
            APART,
            id="away from everybody",
        ),
    ],
)
def test_the_operator_makes_no_other_pod_as_a_placeholder(scaled: AskingBed, change: Change, why: str) -> None:
    wait_for_policies(scaled.cluster, "gpu-1")
    document = training_job("gone", spec={"gpus": 16})
    job = TrainingJob.parse({**document, "metadata": {**document["metadata"], "uid": "b3e7a5c0"}})
    name = placeholder_names(job, SHAPE, PLACEHOLDER_PODS)[0]
    made = deepcopy(placeholder(job, SHAPE, name, IMAGE))
    change(made)
    made["metadata"]["namespace"] = "default"
    login = scaled.cluster.service_account_kubeconfig(NAMESPACE, OPERATOR)
    assert creation_refusal(scaled.cluster, made, "default", login=login) == why
