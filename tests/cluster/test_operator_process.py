"""The operator's process by itself: how it begins, how it ends, and what it says when it cannot begin."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.install import free_port

COMMAND = str(Path(sys.executable).parent / "closeknit-operator")
DEADLINE_S = 30.0
KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: none}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


def answer(port: int, path: str) -> int | None:
    """Status of one answer; None while nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


@pytest.fixture
def without_server(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """An operator whose API server does not answer, and the port of its health."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    port = free_port()
    with subprocess.Popen(
        [COMMAND, f"--kubeconfig={kubeconfig}", f"--metrics-address=127.0.0.1:{port}", "--log-format=json"],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield process, port
        process.kill()


@pytest.mark.alone
def test_without_an_api_server_it_waits_alive_and_not_ready_and_ends_when_told(
    without_server: tuple[subprocess.Popen[str], int],
) -> None:
    process, port = without_server
    began = time.monotonic()
    deadline = began + DEADLINE_S
    while answer(port, "/healthz") is None:
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline, "the operator does not serve its health"
        time.sleep(0.05)
    assert (answer(port, "/healthz"), answer(port, "/readyz"), answer(port, "/metrics")) == (200, 503, 200)
    told = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=DEADLINE_S) == 0
    # At once: it waits for nothing. On a busy machine even that takes its time, though less than the start, 1 s, did.
    assert time.monotonic() - told < max(1.0, told - began)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        pytest.param("--kubeconfig=/nowhere", "closeknit-operator: --kubeconfig /nowhere: no such file", id="no file"),
        pytest.param(
            "--metrics-address=8080",
            "'8080' is not an address such as 127.0.0.1:8080 or :8080",
            id="an address without a host",
        ),
    ],
)
def test_bad_options_are_one_clear_line_and_exit_2(option: str, words: str) -> None:
    ended = subprocess.run(
        [COMMAND, option], check=False, capture_output=True, text=True, env={**os.environ, "KUBECONFIG": ""}
    )
    assert ended.returncode == 2
    assert words in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr


def test_an_address_that_is_taken_is_one_clear_line(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = subprocess.run(
            [COMMAND, f"--kubeconfig={kubeconfig}", f"--metrics-address={address}"],
            check=False,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
    assert ended.returncode == 2
    assert "address already in use" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
