"""Objects of a cluster that `closeknit plan` refuses, in one line each, and what is none of its business."""

import json
from pathlib import Path

import pytest
import yaml

from harness.plan_input import JOB, NODE, NODE_TOPOLOGY, edited, listed, refused, run

CLUSTERS = [
    (
        "an asymmetric matrix",
        edited(NODE_TOPOLOGY, "- PHB X", "- PIX X"),
        "closeknit: cluster.yaml:16: NodeTopology gpu-1: spec.pcie.levels[1]: is PIX to GPU 0, but "
        "pcie.levels[0] is PHB back; both must be the same",
    ),
    (
        "a ragged matrix",
        edited(NODE_TOPOLOGY, "- X PHB", "- X PHB SYS"),
        "closeknit: cluster.yaml:15: NodeTopology gpu-1: spec.pcie.levels[0]: has 3 words; must have 2, one "
        "for each GPU",
    ),
    (
        "a matrix with a row too few",
        edited(NODE_TOPOLOGY, "    - PHB X\n", ""),
        "closeknit: cluster.yaml:14: NodeTopology gpu-1: spec.pcie.levels: has 1 rows; must have one for "
        "each of the 2 gpus, or none",
    ),
    (
        "a matrix with an unknown word",
        edited(NODE_TOPOLOGY, "- X PHB", "- X QPI"),
        "closeknit: cluster.yaml:15: NodeTopology gpu-1: spec.pcie.levels[0]: word 1 is 'QPI'; must be PIX, "
        "PXB, PHB, NODE or SYS",
    ),
    (
        "a file cut in half inside the matrix",
        NODE_TOPOLOGY[: NODE_TOPOLOGY.index(" PHB\n")],
        "closeknit: cluster.yaml:14: NodeTopology gpu-1: spec.pcie.levels: has 1 rows; must have one for "
        "each of the 2 gpus, or none",
    ),
    (
        "a file cut in half inside a word",
        NODE_TOPOLOGY[: NODE_TOPOLOGY.index("ciAddress")],
        "closeknit: cluster.yaml:11: is not valid YAML: could not find expected ':' at line 11 column 1, "
        "while scanning a simple key at line 10 column 5",
    ),
    (
        "a List cut in half",
        listed(NODE, NODE_TOPOLOGY).partition("  spec:")[0],
        "closeknit: cluster.yaml:1: has items but no kind: List; it seems to be cut off",
    ),
    (
        "a matrix in a List",
        listed(NODE, edited(NODE_TOPOLOGY, "- PHB X", "- PIX X")),
        "closeknit: cluster.yaml:26: NodeTopology gpu-1: spec.pcie.levels[1]: is PIX to GPU 0, but "
        "pcie.levels[0] is PHB back; both must be the same",
    ),
    (
        "a matrix in a second document",
        f"# nodes\n---\n{NODE}---\n{edited(NODE_TOPOLOGY, '- PHB X', '- PIX X')}",
        "closeknit: cluster.yaml:28: NodeTopology gpu-1: spec.pcie.levels[1]: is PIX to GPU 0, but "
        "pcie.levels[0] is PHB back; both must be the same",
    ),
    (
        "a matrix in JSON",
        json.dumps(yaml.safe_load(listed(NODE, edited(NODE_TOPOLOGY, "- PHB X", "- PIX X"))), indent=2),
        "closeknit: cluster.yaml:42: NodeTopology gpu-1: spec.pcie.levels[1]: is PIX to GPU 0, but "
        "pcie.levels[0] is PHB back; both must be the same",
    ),
    (
        "a matrix in JSON without line breaks",
        json.dumps(yaml.safe_load(edited(NODE_TOPOLOGY, "- PHB X", "- PIX X"))),
        "closeknit: cluster.yaml:1: NodeTopology gpu-1: spec.pcie.levels[1]: is PIX to GPU 0, but "
        "pcie.levels[0] is PHB back; both must be the same",
    ),
    (
        "an unknown field of a GPU",
        edited(NODE_TOPOLOGY, "index: 1", "index: 1\n    colour: green"),
        "closeknit: cluster.yaml:12: NodeTopology gpu-1: spec.gpus[1].colour: unknown field; allowed: index, "
        "uuid, minor, pciAddress, product, architecture, computeCapability, memoryBytes, numaNode, mig, "
        "nvlinkGeneration, linkBandwidthGBps, pcieGeneration, pcieWidth, c2c",
    ),
    (
        "an unknown way of measuring",
        edited(NODE_TOPOLOGY, "Simulated", "Guessed"),
        "closeknit: cluster.yaml:7: NodeTopology gpu-1: spec.source.method: is 'Guessed'; should be 'NVML', "
        "'NvidiaSmi', 'Recorded' or 'Simulated'",
    ),
    (
        "a heartbeat that is no time",
        edited(NODE_TOPOLOGY, "2026-11-21T12:00:00Z", "noon"),
        "closeknit: cluster.yaml:18: NodeTopology gpu-1: status.heartbeatTime: is 'noon'; expected a time "
        "such as 2026-11-21T12:00:00Z",
    ),
    (
        "a heartbeat at the end of time",
        edited(NODE_TOPOLOGY, "2026-11-21T12:00:00Z", "9999-12-31T23:59:59Z"),
        "closeknit: cluster.yaml:18: NodeTopology gpu-1: status.heartbeatTime: is '9999-12-31T23:59:59Z'; "
        "expected a time such as 2026-11-21T12:00:00Z",
    ),
    (
        "two GPUs of one index",
        edited(NODE_TOPOLOGY, "index: 1", "index: 0"),
        "closeknit: cluster.yaml:11: NodeTopology gpu-1: spec.gpus[1].index: 0 is also that of gpus[0].index",
    ),
    (
        "a negative index",
        edited(NODE_TOPOLOGY, "index: 1", "index: -1"),
        "closeknit: cluster.yaml:11: NodeTopology gpu-1: spec.gpus[1].index: is -1; should be greater than "
        "or equal to 0",
    ),
    (
        "a NodeTopology without a spec",
        NODE_TOPOLOGY[: NODE_TOPOLOGY.index("spec:")],
        "closeknit: cluster.yaml:1: NodeTopology gpu-1: spec: is required",
    ),
    (
        "a kind of ours that does not exist",
        edited(NODE_TOPOLOGY, "kind: NodeTopology", "kind: NodeTopolgy"),
        "closeknit: cluster.yaml:2: NodeTopolgy gpu-1: kind: is 'NodeTopolgy'; allowed: ClusterTopology, "
        "NodeTopology, TrainingJob",
    ),
    (
        "a stored job that is wrong",
        edited(JOB, "gpus: 8", "gpus: 8\n  parallelism:\n    tensor: 3"),
        "closeknit: cluster.yaml:8: TrainingJob ml/train: spec.parallelism: tensor x context x pipeline must "
        "divide gpus",
    ),
    (
        "a level without a label",
        "apiVersion: closeknit.dev/v1alpha1\nkind: ClusterTopology\nmetadata:\n  name: default\n"
        "spec:\n  levels:\n  - name: rack\n",
        "closeknit: cluster.yaml:7: ClusterTopology default: spec.levels[0].nodeLabel: is required",
    ),
    (
        "an unknown field below a name of the user's own",
        "apiVersion: closeknit.dev/v1alpha1\nkind: ClusterTopology\nmetadata:\n  name: default\n"
        "spec:\n  fabric:\n    trafficClasses:\n      training: {dcsp: 26}\n",
        "closeknit: cluster.yaml:8: ClusterTopology default: spec.fabric.trafficClasses.training.dcsp: unknown field; "
        "allowed: dscp, serviceLevel",
    ),
    (
        "an object that is there twice",
        f"{NODE}---\n{NODE_TOPOLOGY}---\n{NODE}",
        "closeknit: cluster.yaml:30: Node gpu-1: is there twice, first in line 1",
    ),
    (
        "a label of a Node that is no string",
        edited(NODE, "rack: r1", "rack: 1"),
        "closeknit: cluster.yaml:5: Node gpu-1: metadata.labels: Expected `str`, got `int`",
    ),
    (
        "slices of an old API",
        NODE.replace("v1", "resource.k8s.io/v1beta1", 1).replace("Node", "ResourceSlice"),
        "closeknit: cluster.yaml:1: ResourceSlice gpu-1: apiVersion: is 'resource.k8s.io/v1beta1'; expected "
        "resource.k8s.io/v1",
    ),
]


@pytest.mark.parametrize(
    ("cluster", "message"), [pytest.param(text, message, id=name) for name, text, message in CLUSTERS]
)
def test_an_object_of_the_cluster_that_is_wrong_by_itself(tmp_path: Path, cluster: str, message: str) -> None:
    assert refused(tmp_path, run(tmp_path, JOB, cluster)) == message


@pytest.mark.parametrize(
    "cluster",
    ["", "---\n# nothing\n", '{"apiVersion": "v1", "kind": "List", "items": []}', JOB, listed(JOB)],
    ids=["an empty file", "nothing but comments", "an empty list", "a job alone", "what a tenant may list"],
)
def test_a_file_without_any_machine_is_no_cluster(tmp_path: Path, cluster: str) -> None:
    assert refused(tmp_path, run(tmp_path, JOB, cluster)) == (
        "closeknit: cluster.yaml: has no Node and no NodeTopology, so that it tells of no GPU; `closeknit plan --help` "
        "has the command that writes such a file, by somebody who may list them"
    )


@pytest.mark.parametrize("gpu", [{}, {"products": ["NVIDIA-H200"]}], ids=["any GPU", "one product"])
def test_nodes_without_agents_are_no_cluster_without_gpus(tmp_path: Path, gpu: dict[str, list[str]]) -> None:
    counted = yaml.safe_load(NODE)
    counted["status"]["capacity"] = counted["status"]["allocatable"] = {"nvidia.com/gpu": "8"}
    job = yaml.safe_load(JOB)
    job["spec"]["gpu"] = gpu
    result = run(tmp_path, json.dumps(job), json.dumps(counted))
    said = " ".join(result.stdout.split())
    assert (result.exit_code, "no GPUs" in said, "free now" in said) == (3, False, False)
    assert (
        "; no node agent has measured a GPU here; 1 node excluded: gpu-1 (NoTopology: it offers 8 nvidia.com/gpu and "
        "has no NodeTopology: does its node agent run?)"
    ) in said


def test_an_unknown_level_is_the_clusters_matter(tmp_path: Path) -> None:
    job = edited(JOB, "gpus: 8", "gpus: 2\n  topology:\n    fabric:\n      required: planet")
    result = run(tmp_path, job, NODE_TOPOLOGY, "-o", "json")
    assert (result.exit_code, result.stderr) == (3, "")
    message = (
        "needs level planet; this cluster has host; name one of these, or describe the level in ClusterTopology default"
    )
    answer = json.loads(result.stdout)
    assert (answer["fits"], answer["pending"]["reason"], answer["pending"]["message"]) == (
        False,
        "UnknownLevel",
        message,
    )
    (nearest,) = answer["pending"]["nearest"]
    assert nearest.startswith("with topology.fabric.required: none: 2 GPUs on 1 node, ")


def test_a_bad_template_of_another_job_is_that_jobs_matter(tmp_path: Path) -> None:
    other = edited(edited(JOB, "- name: trainer", "- name: a\n      - name: b"), "name: train\n", "name: other\n")
    job = edited(JOB, "gpus: 8", "gpus: 2")
    assert run(tmp_path, job, f"{NODE_TOPOLOGY}---\n{other}").exit_code == 0


def test_kinds_that_nobody_looks_at_are_left_out(tmp_path: Path) -> None:
    namesake = "apiVersion: grove.io/v1alpha1\nkind: ClusterTopology\nmetadata: {name: default}\nspec: {levels: 3}\n"
    job = edited(JOB, "gpus: 8", "gpus: 2")
    assert run(tmp_path, job, f"{NODE_TOPOLOGY}---\n{namesake}---\n").exit_code == 0
