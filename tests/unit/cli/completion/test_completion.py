"""Names of jobs and nodes come from the cluster, by tables without objects; and whatever fails, nothing is printed."""

import asyncio
import os
import pty
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from closeknit.cli.completion import names_there
from closeknit.cli.completion.kubectl import complete
from closeknit.cli.main import app
from faults.http_server import serving

NAMES = {
    "namespaces/ml/trainingjobs": ["llama-70b", "llama-8b", "moe-16"],
    "trainingjobs": ["llama-70b", "vision"],
    "nodetopologies": ["gpu-01", "gpu-02", "cpu-01"],
    "namespaces": ["ml", "team-b"],
}


@dataclass
class Server:
    """An API server that knows names."""

    pause_s: float = 0
    asked: list[str] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        assert request.headers["Accept"] == "application/json;as=Table;g=meta.k8s.io;v=v1"
        self.asked.append(request.path_qs)
        await asyncio.sleep(self.pause_s)
        names = NAMES[request.path.partition("/v1alpha1/")[2] or request.path.rpartition("/")[2]]
        rows = [{"cells": [name, 1, None]} for name in names]
        return web.json_response({"kind": "Table", "rows": rows})


def completed(server: Server, folder: Path, capfd: pytest.CaptureFixture[str], *words: str) -> list[str]:
    async def main() -> None:
        async with serving(server.answer, folder):
            given = [each.replace("KUBECONFIG", str(folder / "kubeconfig")) for each in words]
            await asyncio.to_thread(complete, app, "closeknit", given)
            await asyncio.sleep(1.5 * server.pause_s)  # who asked is gone, and the answer ends, too

    asyncio.run(main())
    told = capfd.readouterr()
    assert told.err == ""
    *found, last = told.out.splitlines()
    assert last == ":4"
    return found


REACH = ("--kubeconfig", "KUBECONFIG")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_CLOSEKNIT_COMPLETE", "COMP_WORDS", "COMP_CWORD"):
        monkeypatch.setenv(name, "")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("explain", *REACH, "-n", "ml", "llama"), ["llama-70b", "llama-8b"]),
        (("ranks", *REACH, "-n", "ml", ""), ["llama-70b", "llama-8b", "moe-16"]),
        (("watch", *REACH, "-A", "v"), ["vision"]),
        (("logs", *REACH, "-n", "ml", "nope"), []),
        (("env", *REACH, "-n", "ml", "m"), ["moe-16"]),
        (("topology", *REACH, "gpu"), ["gpu-01", "gpu-02"]),
        (("plan", *REACH, "--without", "c"), ["cpu-01"]),
        (("jobs", *REACH, "-n", "t"), ["team-b"]),
        (("expl",), ["explain"]),
        (("explain", "--kub"), ["--kubeconfig"]),
    ],
    ids=lambda each: " ".join(each).replace("--kubeconfig KUBECONFIG ", ""),
)
def test_names_of_the_cluster(
    words: tuple[str, ...], found: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server = Server()
    assert completed(server, tmp_path, capfd, *words) == found
    assert all(each.endswith("?resourceVersion=0&includeObject=None") for each in server.asked)
    assert len(server.asked) == ("KUBECONFIG" in words)


def test_a_cluster_that_does_not_answer_completes_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names_there, "LONGEST_S", 0.05)
    assert completed(Server(pause_s=0.3), tmp_path, capfd, "explain", *REACH, "-n", "ml", "") == []
    assert completed(Server(), tmp_path, capfd, "explain", "--kubeconfig", "/nowhere", "") == []


def test_kubectl_finds_the_program_that_completes() -> None:
    program = Path(sys.executable).parent / "kubectl_complete-closeknit"
    ended = subprocess.run([program, "ver"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, ":4\n", "")
    ended = subprocess.run([program, "explain", "--all"], capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("--all-namespaces\n:4\n", "")


def test_a_login_program_says_nothing_amid_the_words_of_a_terminal(tmp_path: Path) -> None:
    """It would say it to the terminal on which somebody types."""
    program = tmp_path / "who"
    program.write_text("#!/bin/sh\ntouch ran; echo open https://sso.example >&2\nexit 1\n")
    program.chmod(0o755)
    file = tmp_path / "kubeconfig"
    file.write_text(
        """
        current-context: a
        contexts: [{name: a, context: {cluster: c, user: u}}]
        clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
        users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: ./who}}}]
        """
    )
    ours, theirs = pty.openpty()
    program = Path(sys.executable).parent / "kubectl_complete-closeknit"
    command = [str(program), "explain", "--kubeconfig", str(file), ""]
    with subprocess.Popen(command, cwd=tmp_path, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs) as process:
        assert process.communicate(timeout=30)[0] == b":4\n"
    os.close(theirs)
    os.set_blocking(ours, False)
    with pytest.raises(OSError, match=r"temporarily unavailable|Input/output error"):
        os.read(ours, 1000)
    os.close(ours)
    assert (tmp_path / "ran").exists()
