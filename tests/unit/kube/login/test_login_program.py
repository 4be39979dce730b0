"""A program of a kubeconfig that says who asks: whatever it does, a command has an end and a word about it."""

import asyncio
import json
import logging
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from closeknit.kube.api import Resource
from closeknit.kube.errors import LoginError, Unauthorized
from closeknit.kube.http.http_api import HttpApi
from closeknit.kube.login import login_program
from closeknit.kube.login.login import Login, log_in
from faults.http_server import serving
from harness.certificates import Authority, KeyPair

TOKEN = {"token": "t"}
V1 = "client.authentication.k8s.io/v1"
NODES = Resource("", "v1", "nodes", namespaced=False)


def said(version: str = V1, kind: str = "ExecCredential", **status: Any) -> str:
    """What a program prints."""
    return json.dumps({"apiVersion": version, "kind": kind, "status": status})


def kubeconfig(folder: Path, script: str, **exec_plugin: Any) -> Path:
    """One context whose user is known by a shell script."""
    program = folder / "who"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    body = {
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "c", "user": "me"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "me", "user": {"exec": {"apiVersion": V1, "command": "./who", **exec_plugin}}}],
    }
    file = folder / "programs"
    file.write_text(json.dumps(body))
    return file


def log_in_by(file: Path) -> Login:
    return asyncio.run(log_in(file))


ODD: dict[str, tuple[str, str]] = {
    "megabytes": ("yes", r"has printed more than 1 MiB, which is no credential$"),
    "megabytes besides": (
        "head -c 3000000 /dev/zero | tr '\\0' x >&2; echo >&2; echo sso: log in again >&2; exit 3",
        r"has ended with exit code 3: sso: log in again$",
    ),
    "words": ("echo s3cret", r"has printed no ExecCredential: JSON is malformed: invalid character \(byte 0\)$"),
    "half of it": ("printf '{\"kind\":'", r"has printed no ExecCredential: Input data was truncated$"),
    "too deep": (
        """printf '{"status":'; head -c 100000 /dev/zero | tr '\\0' '['""",
        r"has printed no ExecCredential: \S",
    ),
    "nothing": ("true", r"has printed no ExecCredential: it has printed nothing$"),
    "a signal": ("kill -9 $$", r"was ended by signal 9$"),
    "no status": (f"echo '{said()}'", r"has printed neither a token nor a certificate$"),
    "half a pair": (f"echo '{said(clientKeyData='k')}'", r"has printed a key without its certificate$"),
    "a torn pair": (
        f"echo '{said(clientKeyData='k', clientCertificateData='c')}'",
        r"the certificate that the login program of user me has printed cannot be used: \S",
    ),
    "another version": (
        f"echo '{said('client.authentication.k8s.io/v1beta1', **TOKEN)}'",
        r"has printed ExecCredential of client.authentication.k8s.io/v1beta1, and the kubeconfig asks for \S+/v1$",
    ),
    "another type": (f"echo '{said(token=5)}'", r"Expected `str \| null`, got `int` - at `\$.status.token`$"),
}


@pytest.mark.parametrize(("script", "words"), ODD.values(), ids=ODD.keys())
def test_a_program_that_says_nothing_of_use_is_told_in_a_line(script: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(LoginError, match=words) as refused:
        log_in_by(kubeconfig(tmp_path, script))
    told = str(refused.value)
    assert ("\n" in told, "s3cret" in told, len(told) < 500) == (False, False, True)
    assert "user me" in told


def test_a_program_that_is_not_there_is_told_with_the_hint_of_the_kubeconfig(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path, "true", command="closeknit-no-such-program", installHint="Install it:\n  get program")
    words = "the login program closeknit-no-such-program of user me is not there. Install it: get program"
    with pytest.raises(LoginError, match=f"^{words}$"):
        log_in_by(file)
    with pytest.raises(LoginError, match=r"programs of user me cannot be run: Permission denied$"):
        log_in_by(kubeconfig(tmp_path, "true", command=str(tmp_path / "programs")))


@pytest.mark.parametrize(
    ("exec_plugin", "words"),
    [
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "its apiVersion is 'client.auth.*, and should be"),
        ({"interactiveMode": "Sometimes"}, "its interactiveMode is 'Sometimes', and should be Never, IfAvailable"),
        ({"command": ""}, "its command is empty"),
        ({"args": "one"}, r"Expected `array \| null`, got `str` - at `\$.args`"),
        (
            {"interactiveMode": "Always"},
            r"who of user me asks its user .interactiveMode: Always., and standard input is",
        ),
    ],
)
def test_a_program_that_cannot_be_run_is_told(exec_plugin: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(LoginError, match=words):
        log_in_by(kubeconfig(tmp_path, f"echo '{said(**TOKEN)}'", **exec_plugin))


def is_gone(pid_file: Path) -> Callable[[], bool]:
    """Whether the process that wrote its number there has ended; a zombie has."""

    def gone() -> bool:
        stat = Path(f"/proc/{pid_file.read_text().strip()}/stat")
        try:
            return stat.read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    return gone


def wait_for(found: Callable[[], object]) -> None:
    for _ in range(1000):
        if found():
            return
        time.sleep(0.01)
    raise AssertionError


# A wrapper that Ctrl-C does not end, with a program of its own that holds its pipes open.
STUBBORN = "trap '' INT TERM HUP; echo open https://sso.example >&2; sleep 600 & echo $! > child; echo $$ > own; wait"


def test_a_program_that_hangs_is_ended_with_all_that_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(login_program, "LONGEST_S", 0.5)
    monkeypatch.setattr(login_program, "WAITS_S", 0.2)
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(LoginError, match=r"has not ended within 0.5 s, and was ended: open https://sso.example$"),
    ):
        log_in_by(kubeconfig(tmp_path, STUBBORN))
    told = [each.getMessage() for each in caplog.records]
    words = (
        f"closeknit waits for the login program {tmp_path}/who of user me, for 0.2 s so far: open https://sso.example"
    )
    assert told == [words]
    for name in ("own", "child"):
        wait_for(is_gone(tmp_path / name))


def test_what_a_program_leaves_behind_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that keeps its keys, say, and with it the pipe of the program that began it."""
    monkeypatch.chdir(tmp_path)
    begun = time.monotonic()
    log_in_by(kubeconfig(tmp_path, f"sleep 20 & echo $! > child; echo '{said(**TOKEN)}'"))
    assert time.monotonic() - begun < 10
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


def test_a_signal_while_the_program_is_being_started_ends_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def begun(*args: Any, **kwargs: Any) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(*args, **kwargs)
        wait_for(lambda: (tmp_path / "own").exists() and (tmp_path / "own").read_text())
        signal.raise_signal(signal.SIGTERM)
        return process

    def ends(number: int, _: object) -> None:
        raise SystemExit(number)

    monkeypatch.setattr(login_program, "Popen", begun)
    before = signal.signal(signal.SIGTERM, ends)
    try:
        with pytest.raises(SystemExit):
            log_in_by(kubeconfig(tmp_path, STUBBORN))
    finally:
        signal.signal(signal.SIGTERM, before)
    for name in ("own", "child"):
        wait_for(is_gone(tmp_path / name))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_who_interrupts_the_command_is_told_nothing_and_ends_the_program(number: int, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from closeknit import start; start.command()", "jobs", "--kubeconfig"]
    file = kubeconfig(tmp_path, STUBBORN)
    with subprocess.Popen(
        [*command, str(file)], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    ) as process:
        wait_for((tmp_path / "own").exists)
        wait_for((tmp_path / "own").read_text)
        process.send_signal(number)
        printed = process.communicate(timeout=30)
    assert (process.returncode, printed) == (130 if number == signal.SIGINT else -number, (b"", b""))
    for name in ("own", "child"):
        wait_for(is_gone(tmp_path / name))


def test_at_a_terminal_a_program_may_ask(tmp_path: Path) -> None:
    """It has the terminal as kubectl's would, and is told so."""
    answer = said(**TOKEN)
    script = (
        f"""echo "$KUBERNETES_EXEC_INFO" > info; printf 'code? ' >&2; read code; echo "$code" > code; echo '{answer}'"""
    )
    file = kubeconfig(tmp_path, script, interactiveMode="Always", provideClusterInfo=True)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", "from closeknit import start; start.command()", "jobs", "--kubeconfig", str(file)]
    with subprocess.Popen(command, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while b"code? " not in shown:
            shown += os.read(ours, 1000)
        os.write(ours, b"1234\n")
        while b"cannot ask the cluster: no answer" not in shown:  # which is not there
            shown += os.read(ours, 1000)
        process.wait(timeout=30)
    os.close(ours)
    assert ((tmp_path / "code").read_text(), process.returncode) == ("1234\n", 2)
    told = {"interactive": True, "cluster": {"server": "https://127.0.0.1:1"}}
    assert json.loads((tmp_path / "info").read_text())["spec"] == told


def test_a_program_is_run_again_once_its_token_has_ended_or_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def asked(end: str) -> list[str | None]:
        (tmp_path / "runs").write_text("")
        answer = said(expirationTimestamp=end, **{**TOKEN, "token": "run-$n"}).replace('"', '\\"')
        login = await log_in(kubeconfig(tmp_path, f'echo run >> runs; n=$(wc -l < runs); echo "{answer}"'))
        found = [await login.authorization() for _ in range(2)]
        await login.renew()
        return [*found, await login.authorization()]

    assert asyncio.run(asked("2999-01-01T00:00:00Z")) == ["Bearer run-1", "Bearer run-1", "Bearer run-2"]
    assert asyncio.run(asked("2020-01-01T00:00:00Z")) == ["Bearer run-2", "Bearer run-3", "Bearer run-4"]


def test_a_certificate_that_has_expired_is_told_where_the_server_says_unauthorized_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority()
    good = authority.client("me")
    monkeypatch.setattr("harness.certificates.LIFETIME", timedelta(minutes=-1))
    expired = authority.client("me")

    async def handler(_: web.Request) -> web.Response:
        return web.json_response({"kind": "Status", "message": "Unauthorized"}, status=401)

    async def refused_with(pair: KeyPair, *, is_of_program: bool) -> str:
        (tmp_path / "crt").write_bytes(pair.public)
        (tmp_path / "key").write_bytes(pair.private)
        pem = {"clientCertificateData": pair.public.decode(), "clientKeyData": pair.private.decode()}
        (tmp_path / "said").write_text(said(**pem))
        async with serving(handler, tmp_path):
            server = json.loads((tmp_path / "kubeconfig").read_text())["clusters"][0]["cluster"]["server"]
            file = kubeconfig(tmp_path, f"cat {tmp_path}/said")
            config = json.loads(file.read_text())
            config["clusters"][0]["cluster"]["server"] = server
            if not is_of_program:
                config["users"][0]["user"] = {"client-certificate": "crt", "client-key": "key"}
            file.write_text(json.dumps(config))
            async with await HttpApi.connect(user_agent="test", kubeconfig=file) as api:
                with pytest.raises(Unauthorized) as refused:
                    await api.get(NODES, "n")
                return str(refused.value)

    for is_of_program in (False, True):
        words = asyncio.run(refused_with(expired, is_of_program=is_of_program))
        assert re.fullmatch(
            r"Unauthorized: the client certificate of me has expired on \d{4}-\d\d-\d\d at \d\d:\d\d UTC", words
        )
        assert asyncio.run(refused_with(good, is_of_program=is_of_program)) == "Unauthorized"
