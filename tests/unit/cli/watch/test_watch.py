"""`closeknit watch`: from the queue to the end, on a terminal and for a program."""

import asyncio
import copy
import json
import os
import pty
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from typer.testing import CliRunner

from closeknit.cli.answers.form import AnswerForm
from closeknit.cli.input.given import Reach
from closeknit.cli.input.not_there import NotThere
from closeknit.cli.jobs.told_job import told_of
from closeknit.cli.jobs.told_pod import ToldPod
from closeknit.cli.main import app
from closeknit.cli.watch import command
from closeknit.cli.watch.command import watch
from closeknit.cli.watch.timeline import timeline
from faults.http_server import serving
from unit.project.test_progress import said_on

FILE = Path(__file__).parents[4] / "examples/clusters/busy.yaml"
NOW = datetime(2026, 11, 21, 14, 0, tzinfo=UTC)
JOBS = {
    each["metadata"]["name"]: each for each in yaml.safe_load_all(FILE.read_text()) if each["kind"] == "TrainingJob"
}
METADATA = {"name": "train", "namespace": "ml", "uid": "u", "creationTimestamp": "2026-11-21T13:00:00Z"}


def step(state: str, **status: Any) -> dict[str, Any]:
    return {"metadata": METADATA, "spec": {"gpus": 16}, "status": {"state": state, **status}}


PENDING = {"reason": "NoDomain", "message": "no rack has room", "since": "2026-11-21T13:00:00Z"}
RUNS = [{"type": "Running", "status": "True", "lastTransitionTime": "2026-11-21T13:31:00Z"}]
PLACED = {"startTime": "2026-11-21T13:30:00Z", "placement": {"nodeCount": 2}, "attempt": 1}
LIFE = [
    step("Queued", reason="NoDomain", message="no rack has room", pending=PENDING),
    step("Starting", **PLACED),
    step("Starting", **PLACED),
    step("Running", **PLACED, conditions=RUNS),
    step("Succeeded", **PLACED),
]


@dataclass
class Server:
    """A job that goes on with each look at it."""

    life: list[dict[str, Any]] = field(default_factory=lambda: copy.deepcopy(LIFE))
    pods: int = 0
    looks: int = 0
    failing: frozenset[int] = frozenset()

    async def answer(self, request: web.Request) -> web.Response:
        if request.path.endswith("/pods"):
            self.pods += 1
            status = {"phase": "Running" if self.pods > 2 else "Pending"}
            pods = [{"metadata": {"name": f"train-a1-worker-0000{n}"}, "spec": {"nodeName": "n"}, "status": status}
                    for n in range(2)]  # fmt: skip
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": pods})
        if request.path.endswith("/trainingjobs"):
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
        self.looks += 1
        if self.looks in self.failing:
            return web.json_response({"kind": "Status", "message": "etcd is away", "code": 503}, status=503)
        found = self.life.pop(0) if len(self.life) > 1 else self.life[0]
        if not found:
            return web.json_response({"kind": "Status", "reason": "NotFound", "message": "no", "code": 404}, status=404)
        return web.json_response(found)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "EVERY_S", 0.01)
    monkeypatch.setenv("TZ", "UTC")


def run(
    server: Server, folder: Path, form: AnswerForm = AnswerForm.TABLE, clock: Callable[[], datetime] = lambda: NOW
) -> bool:
    async def main() -> bool:
        async with serving(server.answer, folder):
            return await watch("train", Reach(folder / "kubeconfig", namespace="ml"), form, clock)

    return asyncio.run(main())


def test_a_program_gets_a_line_for_each_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Server(), tmp_path) is True
    assert [line.split(None, 1)[1] for line in capsys.readouterr().out.splitlines()] == [
        "Queued  NoDomain  no rack has room",
        "Starting  -  2 of 2 Pods bound, 0 running",
        "Starting  -  2 of 2 Pods bound, 2 running",
        "Running  -  -",
        "Succeeded  -  -",
    ]


def test_a_job_that_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failed = step("Failed", reason="PodFailed", message="exit code 1")
    assert run(Server([LIFE[3], failed]), tmp_path) is False
    assert capsys.readouterr().out.splitlines()[-1].endswith("Failed  PodFailed  exit code 1")


def test_as_json_each_change_is_an_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(Server(), tmp_path, AnswerForm.JSON)
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["state"] for each in answers] == ["Queued", "Starting", "Starting", "Running", "Succeeded"]
    assert {each["kind"] for each in answers} == {"Explanation"}
    run(Server(), tmp_path, AnswerForm.YAML)
    assert len(list(yaml.safe_load_all(capsys.readouterr().out))) == 5


def test_an_api_server_that_does_not_answer_for_a_moment_is_asked_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(Server(failing=frozenset({2, 3})), tmp_path) is True
    assert capsys.readouterr().err == "closeknit: etcd is away; asking again\n"


@pytest.mark.parametrize(
    ("last", "words"),
    [
        ({}, "ml/train is gone"),
        ({**LIFE[0], "metadata": {**METADATA, "uid": "v"}}, "another job of that name is there"),
    ],
    ids=["gone", "another"],
)
def test_a_job_that_goes_meanwhile(last: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(NotThere, match=words):
        run(Server([LIFE[0], last]), tmp_path)


def test_on_a_terminal_one_page_is_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = pty.openpty()
    monkeypatch.setenv("NO_COLOR", "1")
    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr("sys.stdout", terminal)
        run(Server(), tmp_path)
    text = said_on(master).replace("\r\n", "\n")
    os.close(master)
    first, *others = text.split("\x1b[J")
    assert first.startswith("ml/train waits for GPUs, for 60m: NoDomain\n  no rack has room\nnext step: ")
    assert "queued: 60m: NoDomain" in first
    assert len(others) == 4
    assert first.count("\n") == int(first.rpartition("\x1b[")[2].rstrip("A"))
    assert "queued: 30m\nstarting: 30m: 2 of 2 Pods bound, 0 running\n" in others[0]
    assert "queued: 30m\nstarting: 60s\nrunning: 29m\n" in others[2]


@pytest.mark.parametrize(
    ("message", "lines", "rows"),
    [
        pytest.param("no", "24", 10, id="short"),
        pytest.param("x" * 161, "24", 12, id="a word of three rows"),
        pytest.param("界" * 41, "24", 11, id="wide characters"),
        pytest.param("no", "5", 4, id="a terminal that is too low"),
    ],
)
def test_as_many_rows_are_drawn_over_as_the_page_takes(
    message: str, lines: str, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("NO_COLOR", "1"), ("COLUMNS", "80"), ("LINES", lines)):
        monkeypatch.setenv(name, value)
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr("sys.stdout", terminal)
        run(Server([step("Queued", reason="NoDomain", message=message, pending=PENDING), LIFE[-1]]), tmp_path)
    text = said_on(master)
    os.close(master)
    first, _, _ = text.partition("\x1b[J")
    assert int(first.rpartition("\x1b[")[2].rstrip("A")) == rows
    assert first.count("\n") <= rows
    assert (first.count("more lines: the terminal is too low") == 1) is (lines == "5")


def test_phases_of_a_job_that_starts_again() -> None:
    ended = {"number": 1, "reason": "NodeLost", "ended": "2026-11-21T13:50:00Z", "phases": {"firstStep": "9s"}}
    job = told_of(step("Starting", **PLACED, attempts=[ended]))
    assert timeline(job, (), NOW) == [("queued", "30m"), ("restarting (NodeLost)", "10m: no Pod yet")]
    assert timeline(job, None, NOW)[-1] == ("restarting (NodeLost)", "10m")
    waits = told_of(step("Queued", pending={**PENDING, "estimatedStart": "2026-11-21T13:00:00Z"}))
    assert timeline(waits, (), NOW) == [("queued", "60m: NoDomain; expected to start soon")]
    assert (
        timeline(told_of({"metadata": {"name": "a"}, "status": {"startTime": "x"}}), (ToldPod("p", "", ""),), NOW) == []
    )


def test_the_exit_code_tells_how_it_ended(tmp_path: Path) -> None:
    for last, code in ((LIFE[-1], 0), (step("Failed"), 3)):

        async def main(last: dict[str, Any] = last) -> int:
            async with serving(Server([last]).answer, tmp_path):
                arguments = ["watch", "train", "-n", "ml", "--kubeconfig", str(tmp_path / "kubeconfig")]
                result = await asyncio.to_thread(CliRunner().invoke, app, arguments)
                return result.exit_code

        assert asyncio.run(main()) == code
