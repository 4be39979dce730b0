"""What if: nodes that get no job, GPUs that nobody holds, and changes of the job with where it would then go."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from closeknit.cli.main import app

EXAMPLES = Path(__file__).parents[4] / "examples"


def plan(*options: str, job: str = "tensor-4", cluster: str = "cluster.yaml") -> tuple[int, dict[str, Any]]:
    files = ["-f", str(EXAMPLES / f"{job}.yaml"), "--cluster", str(EXAMPLES / cluster)]
    result = CliRunner().invoke(app, ["plan", *files, *options, "-o", "json"])
    assert result.stderr == ""
    return result.exit_code, json.loads(result.stdout)


def gpus(answer: dict[str, Any]) -> dict[str, list[int]]:
    return {each["name"]: each["gpus"] for each in answer["placement"]["nodes"]}


def uuid(node: str, index: int) -> str:
    result = CliRunner().invoke(app, ["topology", node, "-f", str(EXAMPLES / "cluster.yaml"), "-o", "json"])
    return str(json.loads(result.stdout)["spec"]["gpus"][index]["uuid"])


def test_without_a_node_the_job_goes_elsewhere_or_is_told_why_not() -> None:
    code, answer = plan("--without", "gpu-03")
    assert (code, answer["supposed"]) == (3, "without gpu-03")
    assert "gpu-03 (NotReady: left out, as is supposed)" in answer["pending"]["message"]
    code, answer = plan("--without", "gpu-01", "--without", "gpu-05", job="pytorch-16gpu")
    assert code == 3
    code, answer = plan("--without", "gpu-05", job="pytorch-16gpu")
    assert (code, set(gpus(answer))) == (0, {"gpu-01", "gpu-02"})


@pytest.mark.parametrize("words", ["gpu-03/2,5", "gpu-03", "uuids"])
def test_gpus_that_nobody_holds_can_be_had(words: str) -> None:
    assert gpus(plan()[1]) == {"gpu-03": [0, 3, 4, 7]}
    given = [uuid("gpu-03", index) for index in (2, 5)] if words == "uuids" else [words]
    code, answer = plan(*(each for word in given for each in ("--as-if-free", word)))
    assert (code, gpus(answer)) == (0, {"gpu-03": [0, 1, 2, 3]})
    assert answer["supposed"] == " and ".join(["as if " + ", ".join(given) + " were free"])


def test_what_running_jobs_hold_can_be_supposed_free_too(tmp_path: Path) -> None:
    """A job that waits, in its place in the queue."""
    busy = EXAMPLES / "clusters/busy.yaml"
    (waits,) = (each for each in yaml.safe_load_all(busy.read_text()) if each["metadata"]["name"] == "eval")
    (tmp_path / "eval.yaml").write_text(yaml.safe_dump(waits))
    job = str(tmp_path / "eval")
    assert plan(job=job, cluster="clusters/busy.yaml")[0] == 3
    code, answer = plan("--as-if-free", "gpu-01", "--as-if-free", "gpu-05", job=job, cluster="clusters/busy.yaml")
    assert (code, len(gpus(answer))) == (0, 2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--without", "gpu-9"], "there is no node gpu-9; there are gpu-01, gpu-02, gpu-03, gpu-04, gpu-05"),
        (["--without", "x"], "there is no node x"),
        (["--as-if-free", "gpu-01/8"], "node gpu-01 has no GPU 8; it has 8 GPUs"),
        (["--as-if-free", "gpu-01/all"], "gpu-01/all names no GPUs: write NODE, NODE/0,1 or a uuid"),
        (["--as-if-free", "gpu-01/"], "gpu-01/ names no GPUs: write NODE, NODE/0,1 or a uuid"),
        (["--as-if-free", "GPU-0"], "no node has a GPU GPU-0"),
        (["--as-if-free", "n\x1b[2J"], "there is no node n\\x1b[2J"),
    ],
    ids=str,
)
def test_what_is_not_there_cannot_be_supposed(options: list[str], words: str) -> None:
    files = ["-f", str(EXAMPLES / "tensor-4.yaml"), "--cluster", str(EXAMPLES / "cluster.yaml")]
    result = CliRunner().invoke(app, ["plan", *files, *options])
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"closeknit: {words}\n")


def test_each_change_that_helps_with_where_the_job_would_go() -> None:
    code, answer = plan("--relax", job="too-large")
    assert code == 3
    (change,) = answer["relaxed"]
    assert change["change"] == "topology.nvlink: Ignored" and change["predictedBusBandwidthGBps"] == 15.0
    assert [each["name"] for each in change["nodes"]] == ["gpu-01", "gpu-05", "gpu-02", "gpu-04"]
    assert "relaxed" not in plan(job="too-large")[1]
    assert "relaxed" not in plan("--relax")[1]
