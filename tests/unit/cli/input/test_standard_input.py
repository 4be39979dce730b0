"""`-` in place of a file is standard input, for every command that reads files, and for one of them at a time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from closeknit.cli.main import app

EXAMPLES = Path(__file__).parents[4] / "examples"
JOB, CLUSTER = EXAMPLES / "tensor-4.yaml", EXAMPLES / "cluster.yaml"
TRACE = "arrival,duration,gpus\n0,60,1\n"
PLAN = [sys.executable, "-c", "from closeknit.cli.main import main; main()"]


def piped(given: bytes, *arguments: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*PLAN, *map(str, arguments)], input=given, capture_output=True, check=False)


@pytest.mark.parametrize(
    ("read", "arguments"),
    [
        pytest.param(JOB, ("plan", "-f", "-", "--cluster", CLUSTER), id="the job of a plan"),
        pytest.param(CLUSTER, ("plan", "-f", JOB, "--cluster", "-"), id="the cluster of a plan"),
        pytest.param(JOB, ("env", "-f", "-", "--cluster", CLUSTER), id="the job of an environment"),
    ],
)
def test_a_file_may_be_standard_input(read: Path, arguments: tuple[object, ...]) -> None:
    by_name = [read if each == "-" else each for each in arguments]
    told = [piped(read.read_bytes(), *each, "-o", "json") for each in (arguments, by_name)]
    assert [(each.returncode, each.stderr) for each in told] == [(0, b"")] * 2
    assert json.loads(told[0].stdout) == json.loads(told[1].stdout)


def test_a_trace_may_be_standard_input() -> None:
    ended = piped(TRACE.encode(), "simulate", "-", "--cluster", CLUSTER, "-o", "json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)


def test_a_mistake_in_it_is_told_with_its_line() -> None:
    job = JOB.read_text().replace("gpus: 4", "gpus: 0")
    line = job.splitlines().index("  gpus: 0") + 1
    ended = piped(job.encode(), "plan", "-f", "-", "--cluster", CLUSTER)
    what = "TrainingJob tensor-4: spec.gpus: is 0; should be greater than or equal to 1"
    said = f"closeknit: standard input:{line}: {what}\n"
    assert (ended.returncode, ended.stdout, ended.stderr.decode()) == (2, b"", said)


@pytest.mark.parametrize(
    ("arguments", "who"),
    [
        (("plan", "-f", "-", "--cluster", "-"), "--filename and --cluster"),
        (("env", "-f", "-", "--cluster", "-"), "--filename and --cluster"),
        (("simulate", "-", "--cluster", "-"), "TRACE and --cluster"),
    ],
)
def test_standard_input_is_read_once(arguments: tuple[str, ...], who: str) -> None:
    result = CliRunner().invoke(app, arguments)
    said = f"closeknit: standard input: is asked for by {who}, and can be read once; give one of them a file\n"
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", said)
