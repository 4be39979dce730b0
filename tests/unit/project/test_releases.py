"""Release files are taken only whole and only as pinned, and a server that fails costs a moment and no words."""

import hashlib
import io
import tarfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from harness import releases
from harness.build import ensure_built
from harness.fake_go import builds, install_go, machine
from harness.projects import PROJECTS
from harness.releases import Release, WrongRelease, architecture, fetch

__all__ = ["machine"]

BODY = b"#!/bin/sh\n" + b"x" * 100_000


def _archive() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as files:
        for name in ("README", "v1/program"):
            entry = tarfile.TarInfo(name)
            entry.size = len(BODY)
            files.addfile(entry, io.BytesIO(BODY))
        folder = tarfile.TarInfo("v1/folder")
        folder.type = tarfile.DIRTYPE
        files.addfile(folder)
    return packed.getvalue()


ARCHIVE = _archive()
pytestmark = pytest.mark.skipif(architecture() is None, reason="nothing is published for this machine")


class Server(BaseHTTPRequestHandler):
    """The first part of the path says how it answers."""

    hurry = threading.Event()

    def do_GET(self) -> None:
        how = self.path.split("/")[1]
        if how == "missing":
            self.send_error(404)
            return
        if how == "hangs":
            self.hurry.wait(20)
        body = ARCHIVE if how == "archive" else BODY
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if how in {"cut", "stalls"} else body)
        if how == "stalls":
            self.wfile.flush()
            self.hurry.wait(20)

    def log_message(self, *_: object) -> None:
        """Not on standard error."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(releases, "SILENCE_S", 0.3)
    Server.hurry.clear()
    serving = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=serving.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{serving.server_port}"
    Server.hurry.set()
    serving.shutdown()
    thread.join()
    serving.server_close()


def published(server: str, how: str, program: str, body: bytes = BODY) -> Release:
    digest = hashlib.sha256(body).hexdigest()
    return Release(program, f"{server}/{how}/{{version}}/{{architecture}}/{program}", {architecture() or "": digest})


def test_all_programs_are_taken_and_can_be_run(server: str, tmp_path: Path) -> None:
    assert fetch([published(server, "well", "a"), published(server, "well", "b")], "v1", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    assert (tmp_path / "a").read_bytes() == BODY
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o755


def test_a_program_is_taken_out_of_its_archive(server: str, tmp_path: Path) -> None:
    packed = replace(published(server, "archive", "a", ARCHIVE), inside="{version}/program")
    assert fetch([packed, published(server, "well", "b")], "v1", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    assert (tmp_path / "a").read_bytes() == BODY
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    ("how", "body", "inside"),
    [
        pytest.param("archive", ARCHIVE, "v1/other", id="no such file in it"),
        pytest.param("archive", ARCHIVE, "v1/folder", id="a folder"),
        pytest.param("well", BODY, "v1/program", id="no archive"),
    ],
)
def test_an_archive_without_the_program_leaves_none(
    server: str, tmp_path: Path, how: str, body: bytes, inside: str
) -> None:
    packed = replace(published(server, how, "a", body), inside=inside)
    with pytest.raises(WrongRelease) as error:
        fetch([packed], "v1", tmp_path)
    assert str(error.value) == f"{server}/{how}/v1/{architecture()}/a holds no {inside}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", ["missing", "cut", "hangs", "stalls"])
def test_one_that_cannot_be_had_leaves_none_and_costs_a_moment(server: str, tmp_path: Path, how: str) -> None:
    began = time.monotonic()
    assert not fetch([published(server, "well", "a"), published(server, how, "b")], "v1", tmp_path)
    assert time.monotonic() - began < 5
    assert list(tmp_path.iterdir()) == []


def test_nobody_at_the_other_end(tmp_path: Path) -> None:
    assert not fetch([published("http://127.0.0.1:1", "well", "a")], "v1", tmp_path)


@pytest.mark.parametrize(
    ("how", "body", "said"),
    [
        pytest.param("well", BODY, "kwok {version}: taken from its release", id="taken"),
        pytest.param("missing", BODY, None, id="built without a word"),
        pytest.param(
            "well",
            b"another",
            "{url} does not have the pinned checksum; building kwok instead",
            id="not the pinned one",
        ),
    ],
)
def test_the_build_is_the_fallback(
    server: str, machine: Path, capsys: pytest.CaptureFixture[str], how: str, body: bytes, said: str | None
) -> None:
    install_go(machine)
    release = published(server, how, "kwok", body)
    projects = [replace(each, releases=(release,) if each.name == "kwok" else ()) for each in PROJECTS]
    binaries = ensure_built(projects)
    version = next(each.version for each in PROJECTS if each.name == "kwok")
    lines = capsys.readouterr().err.splitlines()
    url = release.url.format(version=version, architecture=architecture())
    others = [line for line in lines if not line.startswith(("building ", "fetching "))]
    assert others == ([said.format(version=version, url=url)] if said else [])
    is_taken = how == "well" and body is BODY
    assert (binaries.kwok.read_bytes() == BODY) is is_taken
    assert builds(machine) == len(PROJECTS) - is_taken
