"""What `closeknit env` shows of a trainer: every variable, its value, whose it is, and why."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from closeknit.cli.main import app
from scenarios.manifests import Manifest, booked, node, node_topology, training_job

ENV = [{"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "NCCL_ALGO", "value": "Ring"},
       {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]  # fmt: skip
SPEC: dict[str, Any] = {
    "gpus": 16,
    "template": {"spec": {"containers": [{"name": "trainer", "image": "i", "env": ENV}]}},
}


def objects(*, held: bool = True) -> list[Manifest]:
    nodes = [node(name) for name in ("gpu-1", "gpu-2")]
    placement = booked(("gpu-1", range(8)), ("gpu-2", range(8))) if held else None
    return [*nodes, *(node_topology(each["metadata"]["name"]) for each in nodes),
            training_job(spec=SPEC, placement=placement)]  # fmt: skip


def run(folder: Path, found: list[Manifest], *arguments: str) -> Result:
    (folder / "cluster").write_text(yaml.safe_dump_all(found))
    return CliRunner().invoke(app, ["env", *arguments, "--cluster", str(folder / "cluster")])


def shown(folder: Path, *arguments: str) -> dict[str, Any]:
    result = run(folder, objects(), "train", "-n", "team-b", "-o", "json", *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_every_variable_has_a_value_an_owner_and_a_reason(tmp_path: Path) -> None:
    answer = shown(tmp_path, "--node-rank", "1")
    variables = {each["name"]: each for each in answer["variables"]}
    assert (answer["job"], answer["node"], answer["nodeRank"]) == ("team-b/train", "gpu-2", 1)
    assert variables["PET_NODE_RANK"] == {
        "name": "PET_NODE_RANK",
        "value": "1",
        "setter": "closeknit",
        "why": "nodes are ordered so that neighbours are near",
    }
    assert all(each["why"] for each in answer["variables"] if each["setter"] == "closeknit")
    assert variables["NCCL_DEBUG"] == {
        "name": "NCCL_DEBUG",
        "value": "INFO",
        "setter": "template",
        "why": "closeknit would set WARN: errors with their reason, nothing else",
    }
    assert variables["TOKEN"]["value"] == "<secretKeyRef>"
    assert [warning.partition(":")[0] for warning in answer["warnings"]] == ["NCCL_ALGO=Ring"]
    assert "NCCL_PROTO" in answer["leftToNCCL"]
    assert "NCCL_ALGO" not in answer["leftToNCCL"]  # the template has not left it


def test_people_get_a_table(tmp_path: Path) -> None:
    result = run(tmp_path, objects(), "train", "-n", "team-b")
    lines = result.stdout.splitlines()
    assert lines[0] == "team-b/train, node rank 0 on gpu-1"
    assert lines[1].split() == ["VARIABLE", "VALUE", "SET", "BY", "WHY"]
    assert any(line.startswith("warning: NCCL_ALGO=Ring: ") for line in lines)
    assert lines[-1].startswith("left to NCCL: ")


def test_a_job_that_is_only_a_file_shows_what_it_would_get(tmp_path: Path) -> None:
    job = training_job(name="asked", namespace="ml", spec=SPEC)
    (tmp_path / "job").write_text(json.dumps({**job, "metadata": {"name": "asked", "namespace": "ml"}, "status": {}}))
    result = run(tmp_path, objects(held=False)[:-1], "-f", str(tmp_path / "job"))
    assert result.stdout.splitlines()[0] == "ml/asked, node rank 0 on gpu-1"


@pytest.mark.parametrize("gpus", [8, 32], ids=["fits", "does not fit"])
def test_the_file_of_a_booked_job_shows_what_it_would_get_in_its_place(tmp_path: Path, gpus: int) -> None:
    (tmp_path / "job").write_text(json.dumps(training_job(spec={**SPEC, "gpus": gpus})))
    result = run(tmp_path, objects(), "-f", str(tmp_path / "job"))
    held = "team-b/train is placed already (16 GPUs on 2 nodes, gpu-1, gpu-2), with another spec; "
    if gpus == 32:
        words = "the job of the file, in its place, does not fit: InsufficientGPUs"
        assert (result.exit_code, f"{held}{words}" in result.stderr) == (2, True)
        return
    assert result.stdout.splitlines()[:2] == [
        f"{held}if the job of the file replaced it:",
        "team-b/train, node rank 0 on gpu-1",
    ]
    as_json = json.loads(run(tmp_path, objects(), "-f", str(tmp_path / "job"), "-o", "json").stdout)
    assert as_json["booked"] == {"nodes": ["gpu-1", "gpu-2"], "gpus": 16, "sameSpec": False}


@pytest.mark.parametrize(
    ("found", "arguments", "words"),
    [
        (objects(), ["train", "-n", "team-b", "--node-rank", "2"], "has node ranks 0 to 1, and none of 2"),
        (objects(), ["train", "-n", "team-b", "--node-rank", "-1"], "has node ranks 0 to 1, and none of -1"),
        (objects(), ["train"], "has no TrainingJob default/train"),
        (objects(held=False), ["train", "-n", "team-b"], "team-b/train holds no GPUs: nothing is booked for it"),
        (objects(), [], "give the name of a job, or --filename and --cluster"),
        ([*objects()[:2], *objects()[3:]], ["train", "-n", "team-b"], "is no longer what was booked"),
    ],
    ids=["a rank too many", "a rank below 0", "no such job", "not booked", "no name", "a lost machine"],
)
def test_what_cannot_be_shown_is_refused(
    tmp_path: Path, found: list[Manifest], arguments: list[str], words: str
) -> None:
    result = run(tmp_path, found, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_hostile_value_moves_no_cursor(tmp_path: Path) -> None:
    found = objects()
    found[-1]["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "NCCL_ALGO", "value": "\x1b[2J\n" * 9}]
    result = run(tmp_path, found, "train", "-n", "team-b")
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
