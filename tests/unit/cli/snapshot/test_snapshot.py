"""A snapshot decides as its cluster does, and tells nothing that somebody has named."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from typer.testing import CliRunner

from closeknit.cli.input.given import Reach
from closeknit.cli.main import app
from closeknit.cli.snapshot.command import snapshot, written
from closeknit.cli.snapshot.kept_fields import SHAPES
from closeknit.cluster.store.watched_kinds import KINDS
from faults.http_server import serving

EXAMPLES = Path(__file__).parents[4] / "examples"
BUSY = EXAMPLES / "clusters/busy.yaml"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code in (0, 3), result.output
    return result.stdout


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("snapshot") / "taken.yaml"
    assert run("snapshot", "--cluster", str(BUSY), "--file", str(file)) == ""
    return file


def test_every_kind_of_a_decision_is_kept() -> None:
    assert set(SHAPES) == {kind.kind for kind in KINDS}


def test_placeholder_pods_are_left_out_for_they_hold_nothing() -> None:
    job = {"apiVersion": "closeknit.dev/v1alpha1", "kind": "TrainingJob", "name": "a", "uid": "u", "controller": True}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "a-placeholder-0123abcd-0-of-1",
            "namespace": "ml",
            "labels": {"closeknit.dev/placeholder": "a"},
            "ownerReferences": [job],
        },
        "spec": {
            "nodeName": "gpu-1",
            "priority": -10,
            "containers": [{"name": "pause", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
        },
    }
    other = {**pod, "spec": {**pod["spec"], "priority": 0}}  # type: ignore[dict-item]
    for is_anonymous in (True, False):
        assert yaml.safe_load(written([pod], is_anonymous=is_anonymous))["items"] == []
        assert len(yaml.safe_load(written([other], is_anonymous=is_anonymous))["items"]) == 1


NAMES = (
    *(
        "llama-70b",
        "vision",
        "tensor-4",
        "moe-16",
        "eval",
        "night",
        "ml",
        "team-b",
        "gpu-01",
        "gpu-05",
        "r1",
        "notebook",
    ),
    *("torchrun", "registry", "timm", "example.com/rack", "illegal memory", "GPU-3c23fce2"),
)


def test_no_name_is_left(taken: Path) -> None:
    text = taken.read_text()
    for word in NAMES:
        assert re.search(rf"\b{re.escape(word)}\b", text) is None, word
    objects = yaml.safe_load(text)["items"]
    jobs = [each["metadata"]["name"] for each in objects if each["kind"] == "TrainingJob"]
    assert sorted(jobs) == [f"job-{number:05}" for number in range(1, 7)]
    pods = [each["metadata"]["name"] for each in objects if each["kind"] == "Pod"]
    assert all(name.startswith("job-") for name in pods)


def shape(answer: dict[str, Any]) -> Any:
    return [(each["state"], each["reason"], each["gpus"], each["nodes"]) for each in answer["items"]]


def test_it_says_of_jobs_and_of_the_cluster_what_the_cluster_says(taken: Path) -> None:
    mine, theirs = (["--cluster", str(file), "-A", "-o", "json"] for file in (taken, BUSY))
    assert shape(json.loads(run("jobs", *mine))) == shape(json.loads(run("jobs", *theirs)))
    told, true = (json.loads(run("status", *each))["cluster"] for each in (mine, theirs))
    assert {key: told[key] for key in ("gpus", "islands", "largestGang", "jobs")} == {
        key: true[key] for key in ("gpus", "islands", "largestGang", "jobs")
    }
    assert [each["freeGpus"] for each in told["domains"]] == [each["freeGpus"] for each in true["domains"]]


@pytest.mark.parametrize("job", ["tensor-4", "pytorch-16gpu", "too-large"])
def test_a_plan_on_it_is_the_plan_on_the_cluster(job: str, tmp_path: Path) -> None:
    file = tmp_path / "taken.yaml"
    run("snapshot", "--cluster", str(EXAMPLES / "cluster.yaml"), "--file", str(file))
    answers = [
        json.loads(run("plan", "-f", str(EXAMPLES / f"{job}.yaml"), "--cluster", str(each), "-o", "json"))
        for each in (file, EXAMPLES / "cluster.yaml")
    ]
    seats = [
        [(node["gpus"], node["ranks"]) for node in each.get("placement", {"nodes": []})["nodes"]] for each in answers
    ]
    assert (answers[0]["fits"], seats[0]) == (answers[1]["fits"], seats[1])


@pytest.mark.parametrize("value", ["1", "8", "Running", "Ready", "gpu", "NoSchedule"])
def test_a_label_whose_value_is_a_word_of_kubernetes_changes_nothing_else(value: str, tmp_path: Path) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "set-1", "namespace": "x", "labels": {"apps.kubernetes.io/pod-index": value}},
        "spec": {
            "nodeName": "gpu-02",
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
        },
        "status": {"phase": "Running"},
    }
    true, taken = tmp_path / "true.yaml", tmp_path / "taken.yaml"
    true.write_text(yaml.safe_dump_all([*yaml.safe_load_all(BUSY.read_text()), pod]))
    run("snapshot", "--cluster", str(true), "--file", str(taken))
    gpus = [
        json.loads(run("status", "-o", "json", "--cluster", str(each)))["cluster"]["gpus"] for each in (true, taken)
    ]
    assert gpus[0] == gpus[1] and gpus[0]["free"] == 17


RACK = "topology.k8s.aws/network-node-layer-3"
CLIQUE = "c0ffee00-0000-4000-8000-000000000001"


@pytest.mark.parametrize("label", [RACK, "nvidia.com/gpu.clique"])
def test_levels_that_labels_tell_are_the_same(label: str, tmp_path: Path) -> None:
    objects = [each for each in yaml.safe_load_all(BUSY.read_text()) if each["kind"] in ("Node", "NodeTopology")]
    for number, node in enumerate(each for each in objects if each["kind"] == "Node"):
        del node["metadata"]["labels"]["example.com/rack"]
        if label == RACK or number == 0:
            node["metadata"]["labels"][label] = f"nn-{number % 2}" if label == RACK else f"{CLIQUE}.1"
    if label != RACK:
        for each in objects:
            if each["kind"] == "NodeTopology":
                each["spec"]["nvlink"]["domain"] = {"clusterUUID": CLIQUE, "cliqueID": 1}
    true, taken = tmp_path / "true.yaml", tmp_path / "taken.yaml"
    true.write_text(yaml.safe_dump_all(objects))
    run("snapshot", "--cluster", str(true), "--file", str(taken))
    told = [json.loads(run("status", "-o", "json", "--cluster", str(each)))["cluster"] for each in (true, taken)]
    assert told[0]["levels"] == told[1]["levels"]
    assert told[0]["levels"][0]["domains"] == (2 if label == RACK else 1)
    assert "nn-1" not in taken.read_text() and CLIQUE not in taken.read_text()


def test_true_names_are_kept_where_they_are_asked_for() -> None:
    text = run("snapshot", "--cluster", str(BUSY), "--true-names")
    assert "llama-70b" in text and "torchrun" not in text and "registry" not in text
    assert "with its true names" in text.splitlines()[0]


SECRETS: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "p",
        "namespace": "secret-namespace",
        "annotations": {"a": "s3cret"},
        "labels": {"s3cret.example/key": "s3cret"},
        "managedFields": ["s3cret"],
    },
    "spec": {
        "containers": [{"name": "c", "image": "s3cret", "command": ["s3cret"], "args": ["s3cret"],
                        "env": [{"name": "TOKEN", "value": "s3cret"}], "resources": {"limits": {"nvidia.com/gpu": 1}}}],
        "nodeSelector": {"s3cret.example/key": "s3cret"},
        "tolerations": [{"key": "s3cret.example/key", "operator": "Equal", "value": "s3cret"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "s3cret.example/key", "operator": "In", "values": ["s3cret"]}]}]}}},
        "volumes": [{"name": "v", "hostPath": {"path": "/s3cret"}}],
        "hostname": "s3cret",
    },
    "status": {"podIP": "10.0.0.1", "message": "s3cret", "containerStatuses": [{"name": "c", "image": "s3cret"}]},
}  # fmt: skip


def test_what_is_not_on_a_list_stays_out() -> None:
    text = written([SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s3cret"}}], is_anonymous=True)
    assert "s3cret" not in text and "secret-namespace" not in text and "10.0.0.1" not in text
    (pod,) = yaml.safe_load(text)["items"]
    key = next(iter(pod["spec"]["nodeSelector"]))
    assert pod["metadata"]["labels"] == pod["spec"]["nodeSelector"]
    (term,) = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchExpressions"][0]["key"] == key == pod["spec"]["tolerations"][0]["key"]


def test_names_of_what_is_no_part_of_it_are_hidden_too() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "s3cret-owner", "uid": "u", "controller": True}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "namespace": "n",
            "labels": {"closeknit.dev/job": "s3cret-job"},
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeSelector": {"cloud.google.com/gke-nodepool": "s3cret-pool"},
            "priorityClassName": "s3cret-class",
            "containers": [{"name": "s3cret-main", "resources": {"claims": [{"name": "s3cret-inner"}]}}],
            "initContainers": [{"name": "s3cret-init"}],
            "resourceClaims": [{"name": "s3cret-inner", "resourceClaimName": "s3cret-claim"}],
            "volumes": [{"name": "s3cret-volume", "persistentVolumeClaim": {"claimName": "s3cret-data"}}],
        },
        "status": {"containerStatuses": [{"name": "s3cret-main"}]},
    }
    job = {
        "apiVersion": "closeknit.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "j", "namespace": "n", "uid": "v"},
        "spec": {"gpus": 1, "queue": "s3cret-queue", "template": {"spec": {"containers": [{"name": "trainer"}]}}},
    }
    label = {"closeknit.dev/spare-for": "s3cret-queue"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "s3cret-node", "labels": label}}
    text = written([node, pod, job], is_anonymous=True)
    assert "s3cret" not in text
    spare, found, asked = yaml.safe_load(text)["items"]
    assert spare["metadata"]["labels"] == {"closeknit.dev/spare-for": asked["spec"]["queue"]}
    assert (
        found["spec"]["containers"][0]["name"] == found["status"]["containerStatuses"][0]["name"] == "container-00001"
    )
    assert (
        found["spec"]["resourceClaims"][0]["name"] == found["spec"]["containers"][0]["resources"]["claims"][0]["name"]
    )
    assert asked["spec"]["template"]["spec"]["containers"][0]["name"] == "trainer"


def test_a_running_cluster_is_listed_kind_by_kind(tmp_path: Path) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path.rpartition("/")[2])
        objects = [each for each in yaml.safe_load_all(BUSY.read_text()) if f"{each['kind'].lower()}s" == asked[-1]]
        items = [{key: value for key, value in each.items() if key not in ("apiVersion", "kind")} for each in objects]
        if asked[-1] == "devicetaintrules":
            return web.json_response({"kind": "Status", "message": "no", "code": 404}, status=404)
        if asked.count("pods") == 2 and asked[-1] == "pods":
            items = []
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})

    async def main() -> str:
        async with serving(answer, tmp_path):
            return await snapshot(Reach(tmp_path / "kubeconfig"), None, is_anonymous=True)

    objects = yaml.safe_load(asyncio.run(main()))["items"]
    assert set(asked) == {kind.plural for kind in KINDS} and "secrets" not in asked
    assert sum(each["kind"] == "TrainingJob" for each in objects) == 6


def test_a_file_that_cannot_be_written_is_named() -> None:
    result = CliRunner().invoke(app, ["snapshot", "--cluster", str(BUSY), "--file", "/nowhere/x"])
    assert (result.exit_code, result.stderr) == (
        2,
        "closeknit: /nowhere/x cannot be written: No such file or directory\n",
    )
