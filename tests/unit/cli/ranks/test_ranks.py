"""Which rank sits where: the booking's own words, with the Pods beside them."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from closeknit.cli.main import app

FILE = Path(__file__).parents[4] / "examples/clusters/busy.yaml"


def run(*arguments: str, file: Path = FILE) -> Any:
    return CliRunner().invoke(app, ["ranks", *arguments, "--cluster", str(file)])


def test_a_line_for_each_pod() -> None:
    assert run("llama-70b", "-n", "ml").stdout.splitlines() == [
        "RANKS  NODE    GPUS             POD                        STATUS",
        "0-7    gpu-01  0,1,2,3,4,5,6,7  llama-70b-a2-worker-00000  Running",
        "8-15   gpu-05  0,1,2,3,4,5,6,7  llama-70b-a2-worker-00001  Running",
    ]


def test_a_line_for_each_rank_with_its_coordinates() -> None:
    lines = run("llama-70b", "-n", "ml", "-o", "wide").stdout.splitlines()
    assert lines[0].split() == ["RANK", "NODE", "GPU", "POD", "TENSOR", "DATA", "UUID"]
    assert [line.split()[:6] for line in lines[1:]] == [
        [str(rank), "gpu-01" if rank < 8 else "gpu-05", str(rank % 8), "Running", str(rank % 8), str(rank // 8)]
        for rank in range(16)
    ]
    assert len({line.split()[6] for line in lines[1:]}) == 16


def test_programs_get_every_rank() -> None:
    answer = json.loads(run("tensor-4", "-n", "ml", "-o", "json").stdout)
    assert [(each["rank"], each["gpu"]) for each in answer["items"]] == [(0, 0), (1, 3), (2, 4), (3, 7)]
    assert {each["pod"] for each in answer["items"]} == {"tensor-4-a1-worker-00000"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("moe-16", "ml/moe-16 holds no GPUs: NoNVLinkIsland: needs 16 GPUs in one NVLink island"),
        ("vision", "team-b/vision holds no GPUs: it is Failed; `closeknit explain` says more"),
        ("night", "team-b/night holds no GPUs: nothing is booked for it"),
        ("nope", "has no TrainingJob nope in any namespace"),
    ],
)
def test_a_job_that_sits_nowhere(name: str, words: str) -> None:
    result = run(name, "-A")
    assert (result.exit_code, result.stdout) == (2, "") and words in result.stderr


def test_a_pod_that_is_gone_and_gpus_that_are_not_the_planned_ones(tmp_path: Path) -> None:
    objects = [each for each in yaml.safe_load_all(FILE.read_text()) if each["kind"] != "Pod"]
    (job,) = (each for each in objects if each["metadata"]["name"] == "tensor-4" and each["kind"] == "TrainingJob")
    job["status"]["placement"]["nodes"][0]["actual"] = "Mismatch"
    job["status"]["placement"]["spares"] = [{**job["status"]["placement"]["nodes"][0], "name": "gpu-02", "ranks": ""}]
    file = tmp_path / "c.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    assert run("tensor-4", "-n", "ml", file=file).stdout.splitlines()[1:] == [
        "0-3    gpu-03  0,3,4,7  tensor-4-a1-worker-00000  -",
        "spare: gpu-02",
        "some of its Pods got other GPUs than these: closeknit explain",
    ]
