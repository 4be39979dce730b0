"""What `closeknit plan` says of when a job would start, and behind whose reservation it would wait."""

import json
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from closeknit.cli.main import app
from scenarios.manifests import Manifest, booked, condition, node, node_topology, training_job

NOW = "2026-11-21T10:00:00Z"
BOTH = {"gpus": 16, "topology": {"gpusPerNode": 8}}


def plan(folder: Path, job: Manifest, *objects: Manifest, output: str = "json") -> str:
    (folder / "job").write_text(json.dumps(job))
    (folder / "cluster").write_text(yaml.safe_dump_all(objects))
    files = ["-f", str(folder / "job"), "--cluster", str(folder / "cluster")]
    result = CliRunner().invoke(app, ["plan", *files, "-o", output])
    assert (result.stderr, result.exit_code) == ("", 3)
    return result.stdout


def two_nodes() -> list[Manifest]:
    """One of them is held until 11:00, by a job that began ten minutes ago."""
    placed = {**condition("Placed"), "lastTransitionTime": "2026-11-21T09:50:00Z"}
    held = booked(("gpu-1", range(8)))
    running = training_job("runs", spec={"gpus": 8, "expectedDuration": "70m"}, placement=held, conditions=[placed])
    nodes = (each for name in ("gpu-1", "gpu-2") for each in (node(name), node_topology(name, heartbeatTime=NOW)))
    return [*nodes, running]


def pending(printed: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed)["pending"]
    return found


def test_the_first_that_waits_is_told_when(tmp_path: Path) -> None:
    told = pending(plan(tmp_path, training_job("asked", spec=BOTH), *two_nodes()))
    assert told["estimatedStart"] == "2026-11-21T11:00:00Z"
    assert "about 2026-11-21 11:00 UTC it is expected to start on gpu-1, gpu-2" in told["message"]


def test_one_that_would_delay_another_is_told_so_and_no_change_makes_it_fit(tmp_path: Path) -> None:
    waits = training_job("waits", spec=BOTH)
    waits["metadata"]["creationTimestamp"] = "2026-11-21T09:00:00Z"
    late = training_job("late", spec={"gpus": 8})
    late["metadata"]["creationTimestamp"] = "2026-11-21T09:59:00Z"
    told = pending(plan(tmp_path, late, *two_nodes(), waits))
    assert (told["reason"], told["nearest"]) == ("BehindReservation", [])
    assert "estimatedStart" not in told
    people = plan(tmp_path, late, *two_nodes(), waits, output="table")
    assert people.startswith("team-b/late has to wait: BehindReservation\n")
