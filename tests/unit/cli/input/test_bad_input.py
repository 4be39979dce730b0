"""Bad input of `closeknit plan`: exit code 2 and one line that names file, line, field and what is allowed."""

import json
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from closeknit.api.objects import ClusterTopology, NodeTopology, TrainingJob
from closeknit.api.wire import Wire
from closeknit.cli.input.strict import EXAMPLES
from closeknit.cli.main import app
from harness.plan_input import JOB, NODE, NODE_TOPOLOGY, TEMPLATE, edited, listed, refused, run

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
        "tensor, context, pipeline, expert, traffic",
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
        "closeknit: job.yaml:8: TrainingJob ml/train: spec.topology.fabric.patience: is '10'; write it "
        "like 30s or 10m or 1h30m",
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
        "closeknit: job.yaml:1: expected one TrainingJob, found a Node",
    ),
    (
        "another kind",
        "# ours\n" + edited(NODE, "Node", "Ingress").replace("v1", "networking.k8s.io/v1", 1),
        "closeknit: job.yaml:2: expected one TrainingJob, found an Ingress",
    ),
    (
        "a whole cluster",
        listed(
            NODE,
            edited(NODE, "name: gpu-1", "name: gpu-2"),
            NODE_TOPOLOGY,
            *(f"apiVersion: v1\nkind: {kind}\nmetadata: {{name: a}}\n" for kind in ("Service", "Secret", "Event")),
        ),
        "closeknit: job.yaml:3: expected one TrainingJob, found 2 of kind Node, a NodeTopology, a Service and 2 other "
        "kinds",
    ),
    (
        "two TrainingJobs",
        f"{JOB}---\n{JOB}",
        "closeknit: job.yaml:14: expected one TrainingJob, found 2",
    ),
    (
        "an empty file",
        "",
        "closeknit: job.yaml: expected one TrainingJob, found no object at all",
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


@pytest.mark.parametrize(("job", "message"), [pytest.param(text, message, id=name) for name, text, message in JOBS])
def test_a_job_that_is_wrong_by_itself(tmp_path: Path, job: str | bytes, message: str) -> None:
    assert refused(tmp_path, run(tmp_path, job, NODE_TOPOLOGY)) == message


def test_the_unedited_objects_are_good_input(tmp_path: Path) -> None:
    assert run(tmp_path, JOB, f"{NODE}---\n{NODE_TOPOLOGY}").exit_code == 3
    assert run(tmp_path, edited(JOB, "gpus: 8", "gpus: 2"), NODE_TOPOLOGY).exit_code == 0


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


@pytest.mark.parametrize("model", [TrainingJob, NodeTopology, ClusterTopology])
def test_of_every_pattern_an_example_is_shown(model: type[Wire]) -> None:
    """Nobody reads a regular expression."""
    patterns = set(re.findall(r'"pattern": ("(?:[^"\\]|\\.)*")', json.dumps(model.model_json_schema())))
    for pattern in map(json.loads, patterns):
        for example in EXAMPLES[pattern].split(" or "):
            assert re.match(pattern, example), (pattern, example)
