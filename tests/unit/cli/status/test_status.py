"""`closeknit status`: one object and one list, whatever the size of the cluster and the rights of the asker."""

import asyncio
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from typer.testing import CliRunner

from closeknit.api.objects import ClusterTopology
from closeknit.cli.answers.form import AnswerForm
from closeknit.cli.input.given import Reach
from closeknit.cli.main import app
from closeknit.cli.status import glance, told_topology
from closeknit.cli.status.command import status
from closeknit.cli.status.glance import NO_OBJECT, NO_RIGHT, NOT_TOLD
from closeknit.cli.status.told_topology import ToldTopology
from closeknit.cluster.store.watched_kinds import KINDS
from faults.http_server import serving
from unit.cli.jobs.test_told_job import compared

FILE = Path(__file__).parents[4] / "examples/clusters/busy.yaml"
NOW = datetime(2026, 11, 21, 14, 0, tzinfo=UTC)


def test_every_field_is_one_of_the_models() -> None:
    seen: set[str] = set()
    compared(ToldTopology, ClusterTopology, seen)
    assert seen == {name for name in vars(told_topology) if name.startswith("Told")}


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["status", *arguments, "--cluster", str(FILE)])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_of_a_file_it_is_what_the_operator_would_tell() -> None:
    lines = shown().splitlines()
    assert lines[1] == "GPUs  40   18    22    0    0         0"
    assert "rack   2        40    18    18" in lines
    assert "NVLink islands of free GPUs: 1 of 8, 4 of 2, 2 of 1" in lines
    assert "jobs of the cluster: 2 Queued, 2 Running, 1 Suspended, 1 Failed" in lines
    assert max(map(len, lines)) <= 80
    assert not any("namespace default" in line for line in lines)


def test_the_jobs_of_a_namespace_stand_below_those_of_the_cluster() -> None:
    lines = shown("-n", "ml").splitlines()
    assert lines[-3:] == [
        "jobs of namespace ml: 2 Running, 1 Queued",
        "  WAITS FOR       JOBS  GPUS  LONGEST",
        "  NoNVLinkIsland  1     16    37m",
    ]
    assert shown("-o", "wide").splitlines()[-1].startswith("closeknit ")


def test_programs_get_all_of_it() -> None:
    answer = json.loads(shown("-A", "-o", "json"))
    assert (answer["kind"], answer["namespace"], answer["clusterNotShown"]) == ("ClusterStatus", None, None)
    assert answer["cluster"]["gpus"] == {"free": 18, "held": 22, "mig": 0, "unusable": 0, "excluded": 0}
    assert [each["reason"] for each in answer["jobs"]["waiting"]] == ["InsufficientGPUs", "NoNVLinkIsland"]


SUMMARY = {
    "told": "2026-11-21T13:00:00Z",
    "operatorVersion": "9.9.9",
    "nodes": 5000,
    "excludedNodes": {"AgentStale": 2, "NotReady": 1},
    "gpus": {"free": 1200, "held": 38684, "mig": 16, "unusable": 76, "excluded": 24},
    "largestGang": 1100,
    "largestInside": {"rack": 64, "host": 8},
    "islands": {"8": 120, "16": 1, "odd": 3},
    "domains": [{"name": f"b1/r{number}", "nodes": 16, "gpus": 128, "freeGpus": 64} for number in range(20)],
    "jobs": {"Running": 700, "Queued": 12},
    "waiting": [{"reason": "NoDomain", "jobs": 12, "gpus": 4096, "since": "2026-11-20T14:00:00Z"}],
}
LEVELS = [{"name": "rack", "domains": 300, "gpus": 40000, "freeGpus": 1200}, {"name": "host", "domains": 5000}]


@dataclass
class Server:
    """An API server that knows ClusterTopologies and TrainingJobs, and fails at all else."""

    topology: dict[str, Any] | None = field(default_factory=lambda: {"status": {"levels": LEVELS, "summary": SUMMARY}})
    refusal: int = 404
    asked: list[str] = field(default_factory=list)
    more: list[dict[str, Any]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path_qs)
        if request.path == "/apis/closeknit.dev/v1alpha1/clustertopologies/default":
            if self.topology is None:
                told = {"kind": "Status", "message": "no", "code": self.refusal}
                return web.json_response(told, status=self.refusal)
            return web.json_response({"metadata": {"name": "default"}, **self.topology})
        if request.path == "/api/v1/nodes":  # nobody else may list them
            return web.json_response({"kind": "Status", "message": "no", "code": 403}, status=403)
        assert request.path.endswith("/trainingjobs"), request.path
        jobs = [each for each in yaml.safe_load_all(FILE.read_text()) if each["kind"] == "TrainingJob"] + self.more
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": jobs})


def asked(server: Server, folder: Path, form: AnswerForm = AnswerForm.TABLE) -> None:
    async def main() -> None:
        async with serving(server.answer, folder):
            await status(Reach(folder / "kubeconfig", namespace="ml"), None, form, NOW)

    asyncio.run(main())


def test_a_running_cluster_of_any_size_is_asked_for_one_object_and_the_jobs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server()
    asked(server, tmp_path, AnswerForm.WIDE)
    assert server.asked == [
        "/apis/closeknit.dev/v1alpha1/clustertopologies/default",
        "/apis/closeknit.dev/v1alpha1/namespaces/ml/trainingjobs?resourceVersion=0",
    ]
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "GPUs  40000  1200  38684  16   76        24"
    assert "5000 nodes with GPUs; 3 get no job: 2 AgentStale, 1 NotReady" in lines
    assert "  NoDomain   12    4096  24h" in lines
    assert lines[-2].endswith(", operator 9.9.9") and lines[-1] == "the counts of the cluster last changed 60m ago"
    assert sum(line.startswith("b1/r") for line in lines) == 20


def test_of_many_racks_a_few_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked(Server(), tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("b1/r") for line in lines) == 8
    assert "and more with less: -o wide shows 20 of them" in lines


@pytest.mark.parametrize(("made", "is_told"), [("13:58:59", True), ("13:59:30", False)])
def test_of_an_operator_that_looks_at_no_job_it_is_said_that_its_counts_are_old(
    made: str, is_told: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = {"name": "new", "namespace": "ml", "creationTimestamp": f"2026-11-21T{made}Z"}
    new = {
        "metadata": metadata,
        "spec": {"gpus": 4},
        "status": {"conditions": [{"type": "Accepted", "status": "Unknown", "reason": "NotSeen"}]},
    }
    asked(Server(more=[new]), tmp_path)
    shown = capsys.readouterr().out
    assert "  NotSeen           1     4     " in shown
    assert (
        "the operator has not looked at 1 job for 61s: it does not run, or cannot read" in " ".join(shown.split())
    ) is is_told
    asked(Server(more=[new], topology=None, refusal=403), tmp_path)
    assert ("the operator has not looked at 1 job" in capsys.readouterr().out) is is_told


NOT_SHOWN = [
    pytest.param(Server(None, 403), NO_RIGHT, id="no right"),
    pytest.param(Server(None, 404), NO_OBJECT, id="no object"),
    pytest.param(Server({"status": {"levels": LEVELS}}), NOT_TOLD, id="an older operator"),
    pytest.param(Server({}), NOT_TOLD, id="no operator"),
]


@pytest.mark.parametrize(("server", "why"), NOT_SHOWN)
def test_who_may_not_see_the_cluster_sees_the_jobs_and_why(
    server: Server, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked(server, tmp_path)
    text = capsys.readouterr().out
    assert " ".join(text.split()).startswith(f"the cluster as a whole is not shown: {why}")
    assert "jobs of namespace ml: " in text
    asked(server, tmp_path, AnswerForm.JSON)
    answer = json.loads(capsys.readouterr().out)
    assert (answer["cluster"], answer["clusterNotShown"]) == (None, why)


def test_a_status_of_another_shape_is_one_line(tmp_path: Path) -> None:
    from closeknit.cli.input.not_there import NotThere  # noqa: PLC0415

    with pytest.raises(NotThere, match="an object cannot be read"):
        asked(Server({"status": {"summary": "five"}}), tmp_path)


PLURALS = {kind.kind: kind.plural for kind in KINDS} | {"Service": "services"}


@pytest.mark.parametrize("most", [200, 4])
def test_a_small_cluster_without_the_object_is_counted_here(
    most: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glance, "MOST_LISTED", most)
    objects = [each for each in yaml.safe_load_all(FILE.read_text()) if each["kind"] != "ClusterTopology"]
    asked_for: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        plural = request.path.rpartition("/")[2]
        asked_for.append(plural)
        if plural == "default":
            return web.json_response({"kind": "Status", "reason": "NotFound", "message": "no", "code": 404}, status=404)
        items = [each for each in objects if PLURALS[each["kind"]] == plural]
        items = [] if "labelSelector=%21" in request.path_qs else items
        if "as=Table" in request.headers["Accept"]:
            return web.json_response(
                {"kind": "Table", "rows": [{"cells": [each["metadata"]["name"]]} for each in items]}
            )
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})

    async def main() -> None:
        async with serving(answer, tmp_path):
            await status(Reach(tmp_path / "kubeconfig", namespace="ml"), None, AnswerForm.JSON, NOW)

    asyncio.run(main())
    told = json.loads(capsys.readouterr().out)
    if most < 5:
        assert (told["cluster"], told["clusterNotShown"], "pods" in asked_for) == (None, NO_OBJECT, False)
    else:
        assert (told["cluster"]["nodes"], told["clusterNotShown"]) == (5, None)
        assert sum(told["cluster"]["gpus"].values()) == 40
