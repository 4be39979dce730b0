"""Prometheus and promtool: the machine's own, else Debian's, unpacked and not installed, so that no service starts.

`python -m harness.prometheus` brings them: some 20 MB, into ~/.cache/closeknit/prometheus-debian.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec

from harness.debian import NoPackages, unpacked
from harness.install import free_port

PROGRAMS = ("prometheus", "promtool")
STARTS_WITHIN_S = 20.0


class NoPrometheus(Exception):  # noqa: N818 - what it says, like NoFrameworks
    """This machine cannot have it; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Programs:
    """Where they are."""

    prometheus: Path
    promtool: Path

    def check(self, *arguments: str, stdin: str | None = None, cwd: Path | None = None) -> str:
        """What promtool says; raises AssertionError with its words where it is not content."""
        command = [str(self.promtool), *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, cwd=cwd)
        assert done.returncode == 0, f"promtool {' '.join(arguments[:2])}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr


def bring() -> Programs:
    """The programs, unpacked first where they are missing. Raises NoPrometheus."""
    own = [shutil.which(program) for program in PROGRAMS]
    if all(own):
        return Programs(*map(Path, filter(None, own)))
    try:
        folder = unpacked("prometheus-debian", ["prometheus"])
    except NoPackages as error:
        raise NoPrometheus(str(error)) from error
    return Programs(*(folder / "usr/bin" / program for program in PROGRAMS))


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running one, on localhost."""

    port: int

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its API."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            found = msgspec.json.decode(answer.read())
        assert found["status"] == "success", found
        return found["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an instant query."""
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def targets(self) -> Mapping[str, str]:
        """The last error of each target by its URL; empty where all is well."""
        return {each["scrapeUrl"]: each["lastError"] for each in self.get("targets")["activeTargets"]}


@contextmanager
def running(programs: Programs, configuration: Path) -> Iterator[Prometheus]:
    """Prometheus with this configuration, ready, and its data in a folder that goes with it."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="closeknit-prometheus-") as folder:
        command = [
            str(programs.prometheus),
            f"--config.file={configuration}",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
        ]
        with (Path(folder) / "log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "GOMAXPROCS": "1"})
        try:
            _wait(process, port, Path(folder) / "log")
            yield Prometheus(port)
        finally:
            process.send_signal(signal.SIGKILL)  # its data is worth nothing
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=1):
                return
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, f"Prometheus does not start: {log.read_text()}"
            time.sleep(0.1)


if __name__ == "__main__":
    print(bring().prometheus.parent)
    sys.exit(0)
