"""Objects that `closeknit plan` takes, for tests to spoil, and what it says of them."""

from pathlib import Path

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
