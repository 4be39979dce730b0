"""`closeknit logs` against an API server whose Pods print, end, and are not there yet."""

import asyncio
import copy
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from typer.testing import CliRunner

from closeknit.cli.input.given import Reach
from closeknit.cli.input.not_there import NotThere
from closeknit.cli.logs import log_reader
from closeknit.cli.logs.command import logs
from closeknit.cli.logs.log_lines import MOST_LINE_BYTES, LogLines
from closeknit.cli.logs.log_reader import LogsArguments
from closeknit.cli.logs.log_sources import places
from closeknit.cli.main import app
from faults.http_server import serving

FILE = Path(__file__).parents[4] / "examples/clusters/busy.yaml"
JOBS = {
    each["metadata"]["name"]: each for each in yaml.safe_load_all(FILE.read_text()) if each["kind"] == "TrainingJob"
}


@dataclass
class Server:
    """Jobs of the example, and what each Pod has printed so far."""

    printed: dict[str, list[str]] = field(default_factory=dict)
    """Of each Pod: what each GET of its log gives, in their order; the last one again and again."""
    jobs: dict[str, Any] = field(default_factory=lambda: copy.deepcopy(JOBS))
    asked: list[str] = field(default_factory=list)
    looks: int = 0
    """How often a job was asked for."""
    after: Callable[["Server"], None] = lambda _: None
    """Called after each log."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.split("/")
        if parts[-1] == "log":
            self.asked.append(request.path_qs)
            told = self.printed.get(parts[-2])
            if told is None:
                return refused(404, "NotFound", f'pods "{parts[-2]}" not found')
            text = told.pop(0) if len(told) > 1 else told[0]
            if text == "removed" and "previous" in request.query:
                words = f'previous terminated container "trainer" in pod "{parts[-2]}" not found'
                return refused(400, "BadRequest", words)
            if text == "waiting":
                return refused(400, "BadRequest", f'container "trainer" in pod "{parts[-2]}" is waiting to start')
            response = web.StreamResponse()
            await response.prepare(request)
            for at in range(0, len(text), 7):  # lines come in pieces
                await response.write(text[at : at + 7].encode())
            await response.write_eof()
            self.after(self)
            return response
        if parts[-1] == "pods":
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
        if parts[-1] == "trainingjobs":
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
        self.looks += 1
        found = self.jobs.get(parts[-1])
        return web.json_response(found) if found else refused(404, "NotFound", "not found")


def refused(code: int, reason: str, words: str) -> web.Response:
    return web.json_response({"kind": "Status", "reason": reason, "message": words, "code": code}, status=code)


def run(server: Server, folder: Path, job: str, namespace: str = "ml", **asked: Any) -> None:
    options: dict[str, Any] = {"ranks": (), "everyone": False, "follow": False, "tail": None} | asked

    async def main() -> None:
        async with serving(server.answer, folder):
            await logs(LogsArguments(job=job, reach=Reach(folder / "kubeconfig", namespace=namespace), **options))

    asyncio.run(main())


FIRST, SECOND = (f"llama-70b-a2-worker-0000{index}" for index in range(2))


def test_rank_0_prints_what_it_has_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    server = Server({FIRST: ["step 1\nstep 2\nno line break"]})
    run(server, tmp_path, "llama-70b", tail=100)
    assert capfd.readouterr().out == "step 1\nstep 2\nno line break\n"
    assert server.asked == [f"/api/v1/namespaces/ml/pods/{FIRST}/log?container=trainer&tailLines=100"]


def test_a_rank_is_in_the_pod_of_its_node_and_each_pod_prints_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server = Server({FIRST: ["one\n"], SECOND: ["two\n"]})
    run(server, tmp_path, "llama-70b", ranks=(9, 15))
    assert capfd.readouterr().out == "two\n"
    run(server, tmp_path, "llama-70b", ranks=(0, 8))
    assert capfd.readouterr().out == "[0-7] one\n[8-15] two\n"
    run(server, tmp_path, "llama-70b", everyone=True)
    assert capfd.readouterr().out == "[0-7] one\n[8-15] two\n"


def test_of_a_job_that_has_failed_the_pod_that_ended_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(Server({"vision-a1-worker-00000": ["no module\n"]}), tmp_path, "vision", "team-b")
    assert capfd.readouterr().out == "no module\n"


@pytest.mark.parametrize(
    ("job", "asked", "words"),
    [
        ("moe-16", {}, r"ml/moe-16 has no Pod yet: it is Queued \(NoNVLinkIsland\); --follow waits for it"),
        ("llama-70b", {"ranks": (16,)}, "ml/llama-70b has ranks 0 to 15, and none of 16"),
        ("llama-70b", {}, f"there is nothing of ml/llama-70b to read: {FIRST} is gone"),
        ("nope", {}, "there is no TrainingJob nope in namespace ml"),
    ],
)
def test_why_there_is_nothing_to_read(job: str, asked: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(NotThere, match=words):
        run(Server(), tmp_path, job, **asked)


def test_a_container_that_has_not_begun_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotThere, match="is waiting to start"):
        run(Server({FIRST: ["waiting"]}), tmp_path, "llama-70b")


def test_a_pod_that_is_gone_hides_none_of_the_others(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(Server({SECOND: ["two\n"]}), tmp_path, "llama-70b", everyone=True)
    told = capfd.readouterr()
    assert (told.out, told.err) == ("[8-15] two\n", f"closeknit: {FIRST} is gone\n")


def test_previous_is_the_run_before_the_last_restart(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """In other Pods, whose last container is meant; in place, in the container before; and of one that waits again."""
    first, second = (f"llama-70b-a1-worker-0000{index}" for index in range(2))
    server = Server({first: ["one\n"], second: ["two\n"], FIRST: ["now\n"], SECOND: ["now 2\n"]})
    run(server, tmp_path, "llama-70b", previous=True, tail=5)  # without a rank, the one that ended it
    run(server, tmp_path, "llama-70b", previous=True, ranks=(3,))
    run(server, tmp_path, "llama-70b", previous=True, everyone=True)
    assert capfd.readouterr().out == "two\none\n[0-7] one\n[8-15] two\n"
    assert not any("previous" in each for each in server.asked)

    end = {**server.jobs["llama-70b"]["status"]["attempts"][0], "number": 2, "inPlace": True}
    end["exits"] = [{"pod": SECOND, "node": "gpu-05", "exitCode": 1}]
    server.jobs["llama-70b"]["status"]["attempts"].append(end)
    server.asked.clear()
    run(server, tmp_path, "llama-70b", previous=True)
    assert server.asked == [f"/api/v1/namespaces/ml/pods/{SECOND}/log?container=trainer&previous=true"]
    assert capfd.readouterr().out == "now 2\n"

    server.printed[SECOND] = ["removed"]
    with pytest.raises(
        NotThere, match=f"the kubelet has deleted what {SECOND} printed before it started again in place"
    ):
        run(server, tmp_path, "llama-70b", previous=True)
    server.printed[SECOND] = ["now 2\n"]

    del server.jobs["llama-70b"]["status"]["placement"]
    server.jobs["llama-70b"]["status"]["state"] = "Queued"
    with pytest.raises(NotThere, match=r"it is Queued.*; --follow waits, --previous shows its last run"):
        run(server, tmp_path, "llama-70b")
    run(server, tmp_path, "llama-70b", previous=True)
    assert capfd.readouterr().out == "now 2\n"
    assert "previous" not in server.asked[-1]
    with pytest.raises(NotThere, match="has no place now, so that no rank has one: leave out --rank and --all"):
        run(server, tmp_path, "llama-70b", previous=True, ranks=(3,))


def test_previous_of_a_job_that_has_not_restarted(tmp_path: Path) -> None:
    with pytest.raises(NotThere, match="ml/tensor-4 has not restarted: there is no run before"):
        run(Server(), tmp_path, "tensor-4", previous=True)
    words = "give --follow or --previous: what has ended prints nothing more"
    result = CliRunner().invoke(app, ["logs", "tensor-4", "-f", "-p"])
    assert (result.exit_code, result.stderr) == (2, f"closeknit: {words}\n")


def test_who_follows_is_told_once_that_the_api_server_does_not_answer(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "EVERY_S", 0.01)
    server, looked = Server({FIRST: [dated("a")]}), Server.answer

    async def answer(server: Server, request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/llama-70b") and 2 <= server.looks < 6:
            server.looks += 1
            return refused(503, "ServiceUnavailable", "etcd has no leader")
        if server.looks >= 6:
            server.jobs["llama-70b"]["status"]["state"] = "Failed"
        return await looked(server, request)

    monkeypatch.setattr(Server, "answer", answer)
    run(server, tmp_path, "llama-70b", follow=True)
    told = capfd.readouterr()
    assert (told.out, told.err) == ("a\n", "closeknit: etcd has no leader; asking again\n")


def dated(*lines: str) -> str:
    return "".join(f"2026-11-21T12:00:{second:02}.5Z {words}\n" for second, words in enumerate(lines))


def test_who_follows_waits_for_the_pods_goes_on_through_restarts_and_ends_with_the_job(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the job waits, then its container does; it restarts in place, prints on, and succeeds."""
    monkeypatch.setattr(log_reader, "EVERY_S", 0.01)
    server = Server({FIRST: ["waiting", dated("a", "b"), dated("a", "b", "c"), dated("a", "b", "c")]})
    placed = server.jobs["llama-70b"]
    server.jobs["llama-70b"] = {**JOBS["moe-16"], "metadata": placed["metadata"]}

    def after(server: Server) -> None:
        if len(server.asked) == 4:
            conditions = [{"type": "Succeeded", "status": "True", "reason": "Succeeded",
                           "lastTransitionTime": "2026-11-21T13:00:00Z"}]  # fmt: skip
            server.jobs["llama-70b"]["status"] |= {"state": "Succeeded", "conditions": conditions}

    server.after = after

    async def main() -> None:
        async with serving(server.answer, tmp_path):
            reach = Reach(tmp_path / "kubeconfig", namespace="ml")
            task = asyncio.create_task(logs(LogsArguments("llama-70b", (), False, True, 10, reach)))
            while server.looks < 3:  # noqa: ASYNC110 - the first two come before it is told that the job waits
                await asyncio.sleep(0.01)
            server.jobs["llama-70b"] = placed
            await asyncio.wait_for(task, 20)

    asyncio.run(main())
    told = capfd.readouterr()
    assert told.out == "a\nb\nc\n"
    assert told.err == "closeknit: ml/llama-70b has no Pod yet: it is Queued (NoNVLinkIsland)\n"
    assert "tailLines=10" in server.asked[1] and "follow=true&timestamps=true" in server.asked[1]
    assert "sinceTime=2026-11-21T12:00:01Z" in server.asked[2] and "tailLines" not in server.asked[2]


def test_who_follows_goes_on_with_the_pods_of_the_next_attempt(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "EVERY_S", 0.01)
    server = Server({FIRST: [dated("old")], FIRST.replace("-a2-", "-a3-"): [dated("new")]})

    def after(server: Server) -> None:
        status = server.jobs["llama-70b"]["status"]
        status["attempt"] = 3
        if "-a3-" in server.asked[-1]:
            status["state"] = "Failed"

    server.after = after
    run(server, tmp_path, "llama-70b", follow=True)
    assert capfd.readouterr().out == "old\nnew\n"


def test_a_line_without_end_takes_a_bounded_room() -> None:
    lines, long = LogLines(), b"x" * (3 * MOST_LINE_BYTES + 5)
    found = [*lines.of(long[:70000]), *lines.of(long[70000:]), *lines.of(b"\nshort\nrest"), *lines.rest()]
    assert [len(part.text) for part in found] == [MOST_LINE_BYTES] * 3 + [5, 5, 4]
    assert [(part.begins, part.ends) for part in found] == [
        (True, False), (False, False), (False, False), (False, True), (True, True), (True, False),
    ]  # fmt: skip
    assert list(lines.rest()) == []


def test_a_job_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(NotThere, match=r"cannot be read: spec\.gpus"):
        places({**JOBS["moe-16"], "spec": {**JOBS["moe-16"]["spec"], "gpus": "many"}})


def test_more_pods_than_anybody_reads_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "MOST_PODS", 1)
    with pytest.raises(NotThere, match="has 2 Pods, more than 1: name ranks by --rank"):
        run(Server(), tmp_path, "llama-70b", everyone=True)


def test_a_reader_who_goes_ends_it_without_a_word(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As after `| head`: the outlet ends the process silently by this error."""
    reading, writing = os.pipe()
    os.close(reading)
    server = Server({FIRST: [dated(*map(str, range(50)))]})
    deserted = os.fdopen(writing, "w")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sys.stdout", deserted)
        with pytest.raises(BrokenPipeError):
            run(server, tmp_path, "llama-70b", follow=True)
    with suppress(BrokenPipeError):
        deserted.close()
    assert capfd.readouterr().err == ""
