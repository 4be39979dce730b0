"""Bad input of `closeknit plan`: exit code 2 and one line that names file, line, field and what is allowed."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from closeknit.cli.main import app

TEMPLATE = """\
  template:
    spec:
      containers:
      - name: trainer
        image: registry.example/train:1
"""
JOB = f"""\
apiVersion: closeknit.dev/v1alpha1
kind: TrainingJob
metadata:
  name: train
  namespace: ml
spec:
  gpus: 8
{TEMPLATE}"""
NODE_TOPOLOGY = """\
apiVersion: closeknit.dev/v1alpha1
kind: NodeTopology
metadata:
  name: gpu-1
spec:
  source:
    method: Simulated
  gpus:
  - index: 0
    pciAddress: "0000:01:00.0"
  - index: 1
    pciAddress: "0000:02:00.0"
  pcie:
    levels:
    - X PHB
    - PHB X
status:
  heartbeatTime: "2026-11-21T12:00:00Z"
"""
NODE = """\
apiVersion: v1
kind: Node
metadata:
  name: gpu-1
  labels:
    example.com/rack: r1
status:
  conditions:
  - {type: Ready, status: "True"}
"""


def run(folder: Path, job: str | bytes, cluster: str | bytes, *options: str) -> Result:
    for name, content in (("job.yaml", job), ("cluster.yaml", cluster)):
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return CliRunner().invoke(
        app, ["plan", "-f", str(folder / "job.yaml"), "--cluster", str(folder / "cluster.yaml"), *options]
    )


def refused(folder: Path, result: Result) -> str:
    """The one line of a refusal, without the folder."""
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert result.stderr.endswith("\n") and result.stderr.count("\n") == 1
    return result.stderr.rstrip("\n").replace(f"{folder}/", "")


def edited(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times"
    return text.replace(old, new)


def listed(*documents: str) -> str:
    """As kubectl prints them: a List, its kind last."""
    items = [yaml.safe_load(document) for document in documents]
    return yaml.safe_dump({"apiVersion": "v1", "items": items, "kind": "List"})


JOBS = [
    (
        "no GPUs",
        edited(JOB, "gpus: 8", "gpus: 0"),
        "closeknit: job.yaml:7: TrainingJob ml/train: spec.gpus: is 0; should be greater than or equal to 1",
    ),
    (
        "70,000 GPUs",
        edited(JOB, "gpus: 8", "gpus: 70000"),
        "closeknit: job.yaml:7: TrainingJob ml/train: spec.gpus: is 70000; should be less than or equal to 65536",
    ),
    (
        "a number in quotes",
        edited(JOB, "gpus: 8", 'gpus: "8"'),
        "closeknit: job.yaml:7: TrainingJob ml/train: spec.gpus: is '8'; should be a valid integer",
    ),
    (
        "no number of GPUs",
        edited(JOB, "  gpus: 8\n", ""),
        "closeknit: job.yaml:6: TrainingJob ml/train: spec.gpus: is required",
    ),
    (
        "parallelism that does not divide",
        edited(JOB, "gpus: 8", "gpus: 8\n  parallelism:\n    tensor: 3"),
        "closeknit: job.yaml:8: TrainingJob ml/train: spec.parallelism: tensor x context x pipeline must divide gpus",
    ),
    (
        "experts that do not divide",
        edited(JOB, "gpus: 8", "gpus: 8\n  parallelism: {tensor: 2, expert: 3}"),
        "closeknit: job.yaml:8: TrainingJob ml/train: spec.parallelism.expert: expert must divide context x "
        "data: gpus / (tensor x pipeline)",
    ),
    (
        "ranks for each node that do not divide",
        edited(JOB, "gpus: 8", "gpus: 8\n  topology:\n    gpusPerNode: 3"),
        "closeknit: job.yaml:9: TrainingJob ml/train: spec.topology.gpusPerNode: topology.gpusPerNode must divide gpus",
    ),
    (
        "an unknown framework",
        edited(JOB, "gpus: 8", "gpus: 8\n  framework: Caffe"),
        "closeknit: job.yaml:8: TrainingJob ml/train: spec.framework: is 'Caffe'; should be 'PyTorch', "
        "'DeepSpeed', 'Horovod', 'MPI', 'TensorFlow', 'JAX' or 'Custom'",
    ),
    (
        "two containers and no trainer",
        edited(JOB, "- name: trainer", "- name: a\n      - name: b"),
        "closeknit: job.yaml:10: TrainingJob ml/train: spec.template.spec.containers: has 2 containers (a, "
        "b) and none is called trainer; call the one that gets the GPUs trainer",
    ),
    (
        "a template that is not an object",
        edited(JOB, TEMPLATE, "  template: train.py\n"),
        "closeknit: job.yaml:8: TrainingJob ml/train: spec.template: is 'train.py'; should be an object",
    ),
    (
        "a template whose spec is not an object",
        edited(JOB, TEMPLATE, "  template:\n    spec: [trainer]\n"),
        "closeknit: job.yaml:9: TrainingJob ml/train: spec.template.spec: is a list; should be an object",
    ),
    (
        "no template",
        edited(JOB, TEMPLATE, ""),
        "closeknit: job.yaml:6: TrainingJob ml/train: spec.template: is required",
    ),
    (
        "a template that asks for GPUs itself",
        JOB + "        resources:\n          limits:\n            nvidia.com/gpu: 8\n",
        "closeknit: job.yaml:14: TrainingJob ml/train: spec.template.spec.containers[0].resources.limits: "
        "asks for nvidia.com/gpu; closeknit asks for the job's GPUs itself: remove it and set spec.gpus",
    ),
    (
        "a value of the environment that is no string",
        JOB + "        env:\n        - name: DEBUG\n          value: 1\n",
        "closeknit: job.yaml:15: TrainingJob ml/train: spec.template.spec.containers[0].env[0].value: is the "
        "number 1; write it as a string, in quotes",
    ),
    (
        "an unknown field of the spec",
        edited(JOB, "gpus: 8", "gpus: 8\n  parallelism:\n    tensors: 8"),
        "closeknit: job.yaml:9: TrainingJob ml/train: spec.parallelism.tensors: unknown field; allowed: "
        "tensor, context, pipeline, expert",
    ),
    (
        "an unknown field beside the spec",
        JOB + "data: {}\n",
        "closeknit: job.yaml:13: TrainingJob ml/train: data: unknown field; allowed: apiVersion, kind, "
        "metadata, spec, status",
    ),
    (
        "a name that is too long for Pods",
        edited(JOB, "name: train\n", f"name: {'t' * 41}\n"),
        "closeknit: job.yaml:4: TrainingJob ml/ttttttttttttttttttttttttttttttttttttttttt: metadata.name: a "
        "TrainingJob's name starts with a letter, has only lower-case letters, digits and dashes, does not "
        "end in a dash and has at most 40 characters, so that the names of its Pods fit a host name",
    ),
    (
        "a label that is no string",
        edited(JOB, "namespace: ml", "namespace: ml\n  labels:\n    version: 1"),
        "closeknit: job.yaml:7: TrainingJob ml/train: metadata.labels.version: is 1; should be a valid string",
    ),
    (
        "an age that is no time",
        edited(JOB, "namespace: ml", "creationTimestamp: yesterday"),
        "closeknit: job.yaml:5: TrainingJob train: metadata.creationTimestamp: is 'yesterday'; expected a "
        "time such as 2026-11-21T12:00:00Z",
    ),
    (
        "a patience without a unit",
        edited(JOB, "gpus: 8", "gpus: 8\n  topology: {fabric: {patience: '10'}}"),
        "closeknit: job.yaml:8: TrainingJob ml/train: spec.topology.fabric.patience: is '10'; should match "
        "pattern '^([0-9]+(h|m|s))+$'",
    ),
    (
        "another version",
        edited(JOB, "v1alpha1", "v1"),
        "closeknit: job.yaml:1: TrainingJob ml/train: apiVersion: is 'closeknit.dev/v1'; expected "
        "closeknit.dev/v1alpha1",
    ),
    (
        "another project's TrainingJob",
        edited(JOB, "closeknit.dev/v1alpha1", "kubeflow.org/v1"),
        "closeknit: job.yaml:1: TrainingJob ml/train: apiVersion: is 'kubeflow.org/v1'; expected "
        "closeknit.dev/v1alpha1",
    ),
    (
        "no apiVersion",
        edited(JOB, "apiVersion: closeknit.dev/v1alpha1\n", ""),
        "closeknit: job.yaml:1: expected a Kubernetes object with apiVersion and kind",
    ),
    (
        "no name",
        edited(JOB, "  name: train\n", ""),
        "closeknit: job.yaml:3: TrainingJob: metadata.name: is required",
    ),
    (
        "a name that is a number",
        edited(JOB, "name: train\n", "name: 1\n"),
        "closeknit: job.yaml:4: TrainingJob: metadata.name: must be a string",
    ),
    (
        "no metadata",
        "apiVersion: v1\nkind: Pod\n",
        "closeknit: job.yaml:1: Pod: metadata: every object has one, with a name",
    ),
    (
        "no TrainingJob",
        NODE,
        "closeknit: job.yaml: expected one TrainingJob, found none",
    ),
    (
        "two TrainingJobs",
        f"{JOB}---\n{JOB}",
        "closeknit: job.yaml:14: expected one TrainingJob, found 2",
    ),
    (
        "an empty file",
        "",
        "closeknit: job.yaml: expected one TrainingJob, found none",
    ),
    (
        "a list",
        "- 1\n",
        "closeknit: job.yaml:1: expected a Kubernetes object with apiVersion and kind",
    ),
    (
        "a binary file",
        b"\x7fELF\xff\xfe",
        "closeknit: job.yaml: is not UTF-8 text (byte 4)",
    ),
    (
        "YAML that is cut in half",
        JOB[:50],
        "closeknit: job.yaml:1: TrainingJ: metadata: every object has one, with a name",
    ),
    (
        "a wrong indentation",
        edited(JOB, "  gpus", " gpus"),
        "closeknit: job.yaml:8: is not valid YAML: mapping values are not allowed in this context at line 8 column 11",
    ),
    (
        "JSON that is cut in half",
        json.dumps(yaml.safe_load(JOB), indent=1)[:120],
        "closeknit: job.yaml:6: is not valid JSON: Input data was truncated",
    ),
    (
        "JSON with a missing comma",
        '{"apiVersion": "v1",\n "kind": "Pod"\n "metadata": {}}',
        "closeknit: job.yaml:3: is not valid JSON: expected ',' or '}' (byte 37)",
    ),
    (
        "a key that is there twice",
        edited(JOB, "gpus: 8", "gpus: 8\n  gpus: 16"),
        'closeknit: job.yaml:7: is not valid YAML: spec: duplicate entry with key "gpus" at line 7 column 3',
    ),
    (
        "JSON nested too deeply",
        '{"a":' * 5000,
        "closeknit: job.yaml: is nested deeper than 100 levels",
    ),
    (
        "YAML nested too deeply, which its reader would find out after hours",
        edited(JOB, "name: trainer", "name: trainer\n        odd: " + "[" * 200_000),
        "closeknit: job.yaml: is nested deeper than 100 levels",
    ),
    (
        "YAML nested too deeply for the operator",
        edited(JOB, "name: trainer", "name: trainer\n        odd: " + "[" * 101 + "]" * 101),
        "closeknit: job.yaml:1: TrainingJob ml/train: is nested deeper than 100 levels",
    ),
    (
        "45 KB of YAML that would be 5 GB",
        "a: &a [" + ",".join("x" * 10_000) + "]\nb:\n" + "- *a\n" * 5000,
        "closeknit: job.yaml: repeats more than 1,000,000 values by YAML aliases",
    ),
    (
        "aliases inside each other",
        "a: &a [x]\n" + "".join(f"b{n}: &b{n} [{','.join([f'*b{n - 1}' if n else '*a'] * 10)}]\n" for n in range(30)),
        "closeknit: job.yaml: repeats more than 1,000,000 values by YAML aliases",
    ),
    (
        "a name that drives the terminal",
        edited(JOB, "name: train\n", 'name: "a\\e[2J\\nb"\n'),
        "closeknit: job.yaml:4: TrainingJob ml/a\\x1b[2J b: metadata.name: a TrainingJob's name starts with "
        "a letter, has only lower-case letters, digits and dashes, does not end in a dash and has at most 40 "
        "characters, so that the names of its Pods fit a host name",
    ),
]
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


@pytest.mark.parametrize(("job", "message"), [pytest.param(text, message, id=name) for name, text, message in JOBS])
def test_a_job_that_is_wrong_by_itself(tmp_path: Path, job: str | bytes, message: str) -> None:
    assert refused(tmp_path, run(tmp_path, job, NODE_TOPOLOGY)) == message


@pytest.mark.parametrize(
    ("cluster", "message"), [pytest.param(text, message, id=name) for name, text, message in CLUSTERS]
)
def test_an_object_of_the_cluster_that_is_wrong_by_itself(tmp_path: Path, cluster: str, message: str) -> None:
    assert refused(tmp_path, run(tmp_path, JOB, cluster)) == message


def test_the_unedited_objects_are_good_input(tmp_path: Path) -> None:
    assert run(tmp_path, JOB, f"{NODE}---\n{NODE_TOPOLOGY}").exit_code == 3
    assert run(tmp_path, edited(JOB, "gpus: 8", "gpus: 2"), NODE_TOPOLOGY).exit_code == 0


def test_an_unknown_level_is_the_clusters_matter(tmp_path: Path) -> None:
    job = edited(JOB, "gpus: 8", "gpus: 2\n  topology:\n    fabric:\n      required: planet")
    result = run(tmp_path, job, NODE_TOPOLOGY, "-o", "json")
    assert (result.exit_code, result.stderr) == (3, "")
    message = (
        "needs level planet; this cluster has host; name one of these, or describe the level in ClusterTopology default"
    )
    assert json.loads(result.stdout) == {
        "fits": False,
        "pending": {"reason": "UnknownLevel", "message": message, "nearest": []},
    }


def test_a_bad_template_of_another_job_is_that_jobs_matter(tmp_path: Path) -> None:
    other = edited(edited(JOB, "- name: trainer", "- name: a\n      - name: b"), "name: train\n", "name: other\n")
    job = edited(JOB, "gpus: 8", "gpus: 2")
    assert run(tmp_path, job, f"{NODE_TOPOLOGY}---\n{other}").exit_code == 0


def test_kinds_that_nobody_looks_at_are_left_out(tmp_path: Path) -> None:
    namesake = "apiVersion: grove.io/v1alpha1\nkind: ClusterTopology\nmetadata: {name: default}\nspec: {levels: 3}\n"
    job = edited(JOB, "gpus: 8", "gpus: 2")
    assert run(tmp_path, job, f"{NODE_TOPOLOGY}---\n{namesake}---\n").exit_code == 0


@pytest.mark.parametrize(
    ("path", "message"),
    [
        pytest.param(
            "missing.yaml", "closeknit: missing.yaml: cannot be read: No such file or directory", id="missing"
        ),
        pytest.param("", "closeknit: folder: cannot be read: Is a directory", id="a folder"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, path: str, message: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    result = CliRunner().invoke(app, ["plan", "-f", str(folder / path), "--cluster", str(folder / path)])
    assert refused(folder if path else tmp_path, result) == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["plan"], "Error: Missing option '--filename' / '-f'.", id="no file"),
        pytest.param(["plan", "-f", "job.yaml"], "Error: Missing option '--cluster'.", id="no cluster"),
        pytest.param(["plan", "-x"], "Error: No such option: -x", id="an unknown option"),
        pytest.param(["place"], "Error: No such command 'place'. Did you mean 'plan'?", id="an unknown command"),
    ],
)
def test_a_wrong_call(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1] == message


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"]], ids=" ".join)
def test_help_fits_eighty_columns(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
