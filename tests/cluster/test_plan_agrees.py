"""`closeknit plan` gives the operator's own answer for the same objects: what kubectl prints of a real cluster."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from closeknit.api.names import API_VERSION, JOB_LABEL
from closeknit.cli.main import app
from closeknit.kube.api import Resource
from closeknit.kube.errors import Forbidden, Invalid
from closeknit.kube.http.http_api import HttpApi
from closeknit.scheduling.policy.backlog import CROWD
from harness.install import free_port, install, start_agents, start_operator
from harness.local_cluster import LocalCluster, is_running
from harness.machines import OTHER_TEAM, device_class, node_object, notebook, resource_slices
from unit.cli.input import test_pod_spec as templates

KINDS = "nodes,nodetopologies,clustertopologies,trainingjobs,pods,resourceslices,resourceclaims"
KINDS += ",deviceclasses,priorityclasses"
KINDS += ",persistentvolumeclaims,persistentvolumes,storageclasses"
LEFT_BY_JOBS = ("pods", "resourceclaims", "trainingjobs")
RACK_LABEL = "example.com/rack"
PLUGIN = {"h200-1": ("r1", "hgx-h200"), "h200-2": ("r2", "hgx-h200"), "h200-3": ("r1", "hgx-h200")}
BRIDGES = {"a6000-1": ("r2", "pcie-bridges-8")}
DRA = {"v100-1": ("r1", "dgx1-v100"), "v100-2": ("r2", "dgx1-v100")}
HELD = {"v100-1": (2, 5), "v100-2": (0, 3, 6)}  # by Pods of others
PRIORITIES = {"urgent": 1000, "idle": -10}

H200 = {"products": ["NVIDIA-H200"]}
V100 = {"products": ["Tesla-V100-SXM2-32GB"]}
A6000 = {"products": ["NVIDIA-RTX-A6000"]}


@dataclass
class Bed:
    cluster: LocalCluster
    port: int
    operator: int = 0

    def plan(self, job: dict[str, Any]) -> dict[str, Any]:
        """What `closeknit plan` says of a job and of the objects as they are now."""
        folder = self.cluster.directory
        (folder / "objects.yaml").write_text(self.cluster.kubectl("get", KINDS, "--all-namespaces", "--output=yaml"))
        (folder / "job.json").write_text(json.dumps(job))
        files = ["-f", str(folder / "job.json"), "--cluster", str(folder / "objects.yaml")]
        result = CliRunner().invoke(app, ["plan", *files, "-o", "json"])
        assert result.exit_code in (0, 3), result.output
        answer: dict[str, Any] = json.loads(result.stdout)
        answer.get("pending", {}).pop("nearest", None)  # the operator looks for them apart, and later
        return {key: answer[key] for key in ("placement", "pending") if key in answer}

    def live(self, job: dict[str, Any], kubeconfig: Path | None = None) -> tuple[int, dict[str, Any]]:
        """Exit code and answer of a plan that asks the cluster itself."""
        file = self.cluster.directory / "job.json"
        file.write_text(json.dumps(job))
        reach = ["--kubeconfig", str(kubeconfig or self.cluster.kubeconfig)]
        result = CliRunner().invoke(app, ["plan", "-f", str(file), *reach, "-o", "json"])
        assert result.stderr == ""
        return result.exit_code, json.loads(result.stdout)

    def told(self, name: str) -> dict[str, Any]:
        """What the operator says of it, in the same shape, without what only a running gang shows."""
        status = self.cluster.get("trainingjob", name, "default").get("status", {})
        if placement := status.get("placement"):
            return {"placement": {**placement, "nodes": [_planned(node) for node in placement["nodes"]]}}
        if pending := status.get("pending"):
            return {"pending": {key: pending[key] for key in ("reason", "message")}}
        return {}

    def agree(self, name: str, answer: dict[str, Any]) -> None:
        try:  # an operator that has not seen the last Pod go yet first says that the job waits
            self.cluster.wait_for(lambda: self.told(name) == answer, f"{name} to be decided", timeout_s=10)
        except TimeoutError:
            assert self.told(name) == answer

    def stop_operator(self) -> None:
        os.kill(self.operator, signal.SIGKILL)
        self.cluster.wait_for(lambda: not is_running(self.operator), "the operator to end")

    def clean(self) -> None:
        self.cluster.kubectl("delete", "trainingjobs", "--all", "--namespace=default")
        # The garbage collector learns of a new CRD's kind after up to 30 s only.
        self.cluster.kubectl(
            "delete", "pods,services", f"--selector={JOB_LABEL}", "--namespace=default", "--wait=false"
        )
        self.cluster.wait_for(
            lambda: not any(self.cluster.get(kind, namespace="default")["items"] for kind in LEFT_BY_JOBS),
            "the jobs and what they made to be gone",
        )


def _planned(node: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in node.items() if key != "actual"}


def job(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "template": {"spec": {"containers": [{"name": "trainer", "image": "registry.example/train:1"}]}},
            **spec,
        },
    }


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with LocalCluster() as cluster:
        install(cluster)
        levels = [{"name": "rack", "nodeLabel": RACK_LABEL}]
        spec = {"levels": levels, "fabric": {"levelBandwidthGBps": {"rack": 25}}}
        machines = PLUGIN | BRIDGES | DRA
        cluster.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OTHER_TEAM}},
            {"apiVersion": API_VERSION, "kind": "ClusterTopology", "metadata": {"name": "default"}, "spec": spec},
            device_class(),
            *(
                node_object(
                    name, profile, plugin=name not in DRA, labels={RACK_LABEL: rack}, rdma=8 if name in PLUGIN else 0
                )
                for name, (rack, profile) in machines.items()
            ),
            *(each for name, (_, profile) in DRA.items() for each in resource_slices(name, profile)),
            *(
                {
                    "apiVersion": "scheduling.k8s.io/v1",
                    "kind": "PriorityClass",
                    "metadata": {"name": name},
                    "value": value,
                }
                for name, value in PRIORITIES.items()
            ),
        )
        cluster.apply(*(each for name, indexes in HELD.items() for each in notebook(name, indexes)))
        start_agents(cluster, [{"name": name, "profile": profile} for name, (_, profile) in machines.items()])
        cluster.wait_for(lambda: len(cluster.get("nodetopologies")["items"]) == len(machines), "the agents")
        cluster.wait_for(
            lambda: all(pod["spec"].get("nodeName") for pod in cluster.get("pods", namespace=OTHER_TEAM)["items"]),
            "the notebooks to hold their GPUs",
        )
        bed = Bed(cluster, free_port())
        bed.operator = start_operator(cluster, bed.port)
        yield bed


@pytest.fixture(autouse=True)
def clean(bed: Bed) -> Iterator[None]:
    yield
    bed.clean()


FITS = [
    pytest.param({"gpus": 8, "gpu": H200}, ["h200-2"], id="one whole machine"),
    pytest.param({"gpus": 4, "gpu": H200}, ["h200-2"], id="a part of a machine with NVSwitch"),
    pytest.param(
        {"gpus": 4, "gpu": V100, "parallelism": {"tensor": 4}, "topology": {"nvlink": "Required"}},
        ["v100-1"],
        id="what is left of a DGX-1V",
    ),
    pytest.param(
        {"gpus": 8, "gpu": V100, "parallelism": {"tensor": 4}, "topology": {"gpusPerNode": 4}},
        ["v100-1", "v100-2"],
        id="what is left of two DGX-1Vs",
    ),
    pytest.param(
        {"gpus": 16, "gpu": H200, "parallelism": {"tensor": 8}, "topology": {"fabric": {"preferred": "rack"}}},
        ["h200-1", "h200-3"],
        id="a gang in one rack",
    ),
    pytest.param(
        {"gpus": 24, "gpu": H200, "parallelism": {"tensor": 4, "pipeline": 2}},
        ["h200-1", "h200-3", "h200-2"],
        id="a gang over two racks",
    ),
    pytest.param({"gpus": 16, "network": {"rdma": "Required"}}, ["h200-1", "h200-3"], id="a gang that needs RDMA"),
    pytest.param({"gpus": 2, "gpu": {**A6000, "binding": "BestEffort"}}, ["a6000-1"], id="a pair of bridged cards"),
]
REFUSED = [
    pytest.param({"gpus": 512}, "InsufficientGPUs", id="more GPUs than there are"),
    pytest.param(
        {"gpus": 32, "parallelism": {"tensor": 32}, "topology": {"nvlink": "Required"}},
        "NoNVLinkIsland",
        id="a group that no island holds",
    ),
    pytest.param(
        {"gpus": 24, "gpu": H200, "topology": {"fabric": {"required": "rack"}}}, "NoDomain", id="more than one rack has"
    ),
    pytest.param({"gpus": 8, "topology": {"fabric": {"required": "planet"}}}, "UnknownLevel", id="an unknown level"),
    pytest.param({"gpus": 8, "gpu": {"products": ["NVIDIA-B300"]}}, "NoMatchingGPU", id="a product that is not there"),
    pytest.param(
        {"gpus": 4, "gpu": V100, "topology": {"gpusPerNode": 2}, "network": {"rdma": "Required"}},
        "RDMAUnavailable",
        id="RDMA where Pods get none",
    ),
    pytest.param(
        {"gpus": 4, "gpu": V100, "topology": {"minBusBandwidthGBps": 200}},
        "BandwidthBelowMinimum",
        id="more bandwidth than there is",
    ),
    pytest.param(
        {"gpus": 8, "elastic": {"minGPUs": 4}, "spares": 1}, "NotSupported", id="fields that contradict each other"
    ),
]


@pytest.mark.parametrize(("spec", "nodes"), FITS)
def test_a_job_that_fits_goes_where_it_was_planned(bed: Bed, spec: dict[str, Any], nodes: list[str]) -> None:
    asked = job("train", **spec)
    answer = bed.plan(asked)
    assert [node["name"] for node in answer["placement"]["nodes"]] == nodes
    bed.cluster.apply(asked)
    bed.agree("train", answer)


@pytest.mark.parametrize(("spec", "reason"), REFUSED)
def test_a_job_that_does_not_fit_waits_for_the_reason_that_was_told(
    bed: Bed, spec: dict[str, Any], reason: str
) -> None:
    asked = job("train", **spec)
    answer = bed.plan(asked)
    assert answer["pending"]["reason"] == reason
    bed.cluster.apply(asked)
    bed.agree("train", answer)


def test_a_booked_job_keeps_its_booking_and_others_see_it(bed: Bed) -> None:
    first, second = (job(name, gpus=16, gpu=H200) for name in ("first", "second"))
    answer = bed.plan(first)
    bed.cluster.apply(first)
    bed.agree("first", answer)
    assert _bare(bed.plan(first)) == answer
    refused = bed.plan(second)
    assert refused["pending"]["reason"] == "InsufficientGPUs"
    bed.cluster.apply(second)
    bed.agree("second", refused)


def test_the_environment_that_is_shown_is_that_of_the_pod(bed: Bed) -> None:
    """`closeknit env` asks the cluster by itself, and says of each variable what the Pod has."""
    asked = job("train", gpus=16, gpu=H200, network={"rdma": "Required"})
    answer = bed.plan(asked)
    bed.cluster.apply(asked)
    bed.agree("train", answer)
    files = ["--kubeconfig", str(bed.cluster.kubeconfig), "-o", "json"]
    shown = CliRunner().invoke(app, ["env", "train", "--node-rank", "1", *files])
    assert shown.exit_code == 0, shown.output
    name = "train-a1-worker-00001"
    pod = bed.cluster.wait_for(
        lambda: next(
            (
                each
                for each in bed.cluster.get("pods", namespace="default")["items"]
                if each["metadata"]["name"] == name
            ),
            None,
        ),
        f"Pod {name}",
    )
    (trainer,) = pod["spec"]["containers"]
    variables = {each["name"]: each["value"] for each in json.loads(shown.stdout)["variables"]}
    assert variables == {each["name"]: each["value"] for each in trainer["env"]}
    assert variables["NCCL_NET"] == "IB"


def test_jobs_of_one_queue_are_decided_in_its_order(bed: Bed) -> None:
    """All are there before the operator is; each sees those before it, and one that does not fit reserves nothing."""
    jobs = [
        job("a-idle", gpus=8, gpu=H200, priorityClassName="idle"),
        job("b-plain", gpus=8, gpu=H200),
        job("c-large", gpus=64, gpu=H200),
        job("d-urgent", gpus=16, gpu=H200, priorityClassName="urgent"),
        job("e-late", gpus=4, gpu=V100),
    ]
    bed.stop_operator()
    bed.cluster.apply(*jobs)
    answers = {each["metadata"]["name"]: bed.plan(each) for each in jobs}
    assert [name for name, answer in answers.items() if "placement" in answer] == ["b-plain", "d-urgent", "e-late"]
    bed.operator = start_operator(bed.cluster, bed.port)
    large = answers.pop("c-large")  # it is decided again when e-late has its GPUs, and then counts those, too
    for name, answer in answers.items():
        bed.agree(name, answer)
    assert bed.told("c-large")["pending"]["reason"] == large["pending"]["reason"] == "InsufficientGPUs"


def test_a_gang_too_large_for_what_it_prefers_gives_way_while_smaller_ones_wait(bed: Bed) -> None:
    """One node of rack r1 is taken, so that no rack has two; a job of two nodes prefers one."""
    others = [f"other-{number}" for number in range(CROWD)]
    there, *waiting = [job(name, gpus=8, gpu=H200) for name in ("there", *others)]
    for each in (there, *waiting):
        each["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "h200-1"}
    bed.cluster.apply(there)
    bed.cluster.wait_for(lambda: bed.told("there").get("placement"), "the node to be taken")
    bed.cluster.apply(*waiting)
    bed.cluster.wait_for(lambda: all(map(bed.told, others)), "the others to be decided")
    fabric = {"preferred": "host", "patience": "1h"}
    asked = job("train", gpus=16, gpu=H200, topology={"gpusPerNode": 8, "fabric": fabric})
    answer = bed.plan(asked)
    bed.cluster.apply(asked)
    pending = bed.cluster.wait_for(lambda: bed.told("train").get("pending"), "it to wait")
    assert pending["reason"] == "WaitingForPreferred"
    assert "while smaller jobs wait for room, waits for 16 GPUs in one rack; r1 has the most free" in pending["message"]
    bed.cluster.kubectl("delete", "trainingjobs", others[0], "--namespace=default")
    bed.agree("train", answer)
    assert [node["name"] for node in answer["placement"]["nodes"]] == ["h200-3", "h200-2"]


def test_a_plan_of_the_running_cluster_is_that_of_its_dump(bed: Bed) -> None:
    """It makes nothing, and another user's right to look is not the right to make."""
    asked = job("train", gpus=16, gpu=H200, network={"rdma": "Required"})
    code, answer = bed.live(asked)
    assert (code, answer["placement"]) == (0, bed.plan(asked)["placement"])
    assert not any("API server" in words for words in answer["notChecked"])
    assert bed.cluster.get("trainingjobs", namespace="default")["items"] == []
    bed.cluster.kubectl("create", "clusterrolebinding", "looks", "--clusterrole=view", "--serviceaccount=default:looks")
    bed.cluster.kubectl("create", "clusterrole", "looks-at-closeknit", "--verb=list", "--resource="
                        "nodes,nodetopologies.closeknit.dev,clustertopologies.closeknit.dev,trainingjobs.closeknit.dev,"
                        "resourceslices.resource.k8s.io,resourceclaims.resource.k8s.io,deviceclasses.resource.k8s.io,"
                        "priorityclasses.scheduling.k8s.io,persistentvolumes,"
                        "storageclasses.storage.k8s.io")  # fmt: skip
    bed.cluster.kubectl("create", "clusterrolebinding", "looks-at-closeknit", "--clusterrole=looks-at-closeknit",
                        "--serviceaccount=default:looks")  # fmt: skip
    bed.cluster.kubectl("create", "serviceaccount", "looks", "--namespace=default")
    viewer = bed.cluster.service_account_kubeconfig("default", "looks")
    code, answer = bed.live(asked, kubeconfig=viewer)
    assert (code, sum("you may not create" in words for words in answer["notChecked"])) == (0, 2)


REFUSED_BY_THE_CLUSTER = [
    pytest.param({"priorityClassName": "hihg"}, {}, "default", "needs PriorityClass hihg; ", id="a priority class"),
    pytest.param(
        {}, {"runtimeClassName": "nvidia"}, "default", 'RuntimeClass "nvidia" not found', id="a runtime class"
    ),
    pytest.param({}, {"hostNetwork": True}, "default", "not allowed in a TrainingJob template", id="our admission"),
    pytest.param({}, {}, "nowhere", 'namespaces "nowhere" not found', id="a namespace"),
    pytest.param({}, {}, "restricted", 'violates PodSecurity "restricted', id="Pod Security"),
    pytest.param({}, {}, "narrow", "exceeded quota: narrow", id="a quota"),
]


@pytest.fixture(scope="module")
def namespaces(bed: Bed) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "narrow", "namespace": "narrow"},
             "spec": {"hard": {"pods": "0"}}}  # fmt: skip
    for name in ("restricted", "narrow"):
        metadata = {"name": name, "labels": labels if name == "restricted" else {}}
        bed.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        bed.cluster.wait_for_default_account(name)
    bed.cluster.apply(quota)
    bed.cluster.wait_for(
        lambda: bed.cluster.get("resourcequota", "narrow", "narrow").get("status", {}).get("hard"), "the quota to count"
    )


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize(("spec", "pod", "namespace", "words"), REFUSED_BY_THE_CLUSTER)
def test_a_job_that_the_cluster_would_not_take_does_not_fit(
    bed: Bed, spec: dict[str, Any], pod: dict[str, Any], namespace: str, words: str
) -> None:
    asked = job("train", gpus=8, gpu=H200, **spec)
    asked["metadata"]["namespace"] = namespace
    asked["spec"]["template"]["spec"] |= pod
    code, answer = bed.live(asked)
    assert (code, answer["pending"]["reason"]) == (3, "TemplateInvalid")
    assert words in answer["pending"]["message"]


def test_what_is_refused_without_a_cluster_an_api_server_refuses(bed: Bed) -> None:
    """And takes what is taken: neither a mistake that is let pass, nor a right template that is not."""

    taken = dict(templates.TAKEN)
    refused = {name: (container, spec) for name, (container, spec, _) in templates.REFUSED.items()}
    barred = {name: (container, spec) for name, (container, spec, _) in templates.NOT_ADMITTED.items()}

    async def main() -> dict[str, bool]:
        async with await HttpApi.connect(kubeconfig=bed.cluster.kubeconfig, user_agent="closeknit-test/1") as api:
            pods = {f"pod: {name}": await _takes(api, PODS, _pod(*each)) for name, each in (taken | refused).items()}
            jobs = {
                f"job: {name}": await _takes(api, JOBS, templates.job(*each)) for name, each in (taken | barred).items()
            }
            return pods | jobs

    found = asyncio.run(main())
    expected = {f"{kind}: {name}": True for kind in ("pod", "job") for name in templates.TAKEN}
    expected |= {f"pod: {name}": False for name in refused} | {f"job: {name}": False for name in barred}
    assert found == expected


PODS = Resource("", "v1", "pods", namespaced=True)
JOBS = Resource("closeknit.dev", "v1alpha1", "trainingjobs", namespaced=True)


def _pod(container: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    template = templates.job(container, spec)["spec"]["template"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}, **template}


async def _takes(api: HttpApi, resource: Resource, body: dict[str, Any]) -> bool:
    try:
        await api.create(resource, body, namespace="default", dry_run=True)
    except (Invalid, Forbidden):
        return False
    return True


def _bare(answer: dict[str, Any]) -> dict[str, Any]:
    placement = answer["placement"]
    return {"placement": {**placement, "nodes": [_planned(node) for node in placement["nodes"]]}}
