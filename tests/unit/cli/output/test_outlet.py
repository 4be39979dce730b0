"""What becomes of an answer that cannot be printed as it is."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

EXAMPLES = Path(__file__).parents[4] / "examples"
PLAN = ("plan", "-f", "tensor-4.yaml", "--cluster", "cluster.yaml", "-o", "json")  # some kilobytes, left in a buffer
TABLE = ("topology", "-f", "cluster.yaml")
HELP = ("--help",)
EXPLAIN = ("explain", "llama-70b", "-A", "--cluster", "clusters/busy.yaml")
SNAPSHOT = ("snapshot", "--cluster", "clusters/busy.yaml")
EVERY = pytest.mark.parametrize("arguments", [PLAN, TABLE, HELP, EXPLAIN, SNAPSHOT], ids=lambda each: each[0])


def run(arguments: tuple[str, ...], stdout: int, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The command, with output that is buffered as it is for users."""
    command = (sys.executable, "-c", "from closeknit.cli.main import main; main()", *arguments)
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        command, cwd=EXAMPLES, stdout=stdout, stderr=subprocess.PIPE, env=inherited | environment, check=False
    )


def shell(redirection: str, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[bytes]:
    """The command with a stream that is closed before it begins."""
    program = (sys.executable, "-c", "from closeknit.cli.main import main; main()", *arguments)
    return subprocess.run(
        ("bash", "-c", f'"$@" {redirection}', "bash", *program), cwd=EXAMPLES, capture_output=True, check=False
    )


@pytest.fixture
def deserted() -> Iterator[int]:
    """A pipe that nobody reads any more."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


@EVERY
def test_who_reads_no_further_is_told_nothing(arguments: tuple[str, ...], deserted: int) -> None:
    ended = run(arguments, deserted)
    assert (ended.returncode, ended.stderr) == (1, b"")


@EVERY
def test_a_full_disk_is_one_line(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = run(arguments, full.fileno())
    assert ended.stderr == b"closeknit: the answer cannot be written: No space left on device\n"
    assert ended.returncode == 2


@EVERY
def test_without_standard_output_it_is_one_line(arguments: tuple[str, ...]) -> None:
    ended = shell(">&-", arguments)
    assert ended.stderr == b"closeknit: the answer cannot be written: standard output is closed\n"
    assert ended.returncode == 2


def test_what_is_meant_for_a_closed_standard_error_is_not_in_the_answer() -> None:
    ended = shell("2>&-", ("explain", "no-such-job", "-A", "--cluster", "clusters/busy.yaml", "-o", "json"))
    assert (ended.returncode, ended.stdout) == (2, b"")


def test_characters_that_the_encoding_lacks_are_escaped(tmp_path: Path) -> None:
    job = yaml.safe_load((EXAMPLES / "pytorch-16gpu.yaml").read_text())
    job["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "RUN", "value": "größer"}]
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    arguments = ("env", "-f", str(tmp_path / "job.yaml"), "--cluster", "cluster.yaml")
    ended = run(arguments, subprocess.PIPE, PYTHONIOENCODING="ascii")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert rb"gr\xf6\xdfer" in ended.stdout
