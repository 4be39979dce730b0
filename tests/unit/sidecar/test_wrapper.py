"""The wrapper around a trainer: it tells how that ended, and is otherwise not there."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from closeknit.launch.manifests.sidecar_container import LAUNCH, NO_PYTHON, SHELL, WRAPPER
from closeknit.sidecar.gang.run_folder import RunFolder

PYTHON = sys.executable


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run").write_text("2")
    (tmp_path / "exit-1").write_text("9")
    (tmp_path / "wrapped-1").touch()
    (tmp_path / "termination-log").write_text("out of tea\n")
    return tmp_path


@pytest.fixture(autouse=True)
def hangups_are_heeded() -> Iterator[None]:
    """Where nohup has started the tests they ignore SIGHUP, and a shell below them could not heed it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def start(
    folder: Path, *command: str, path: str | None = None, variables: Mapping[str, str] | None = None, **options: Any
) -> "subprocess.Popen[str]":
    words = [SHELL, "-c", LAUNCH, WRAPPER, str(folder), str(folder / "termination-log"), *command]
    found = f"{Path(PYTHON).parent}:/usr/bin:/bin" if path is None else path
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    ran: subprocess.Popen[str] = subprocess.Popen(
        words, env={"PATH": found, "HERE": "yes", **(variables or {})}, text=True, **streams
    )
    return ran


def end(ran: "subprocess.Popen[str]") -> int:
    ran.communicate(timeout=20)
    return ran.returncode


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -9 $$", 137), ("kill -11 $$", 139)]
)
def test_the_exit_code_is_told_and_kept(folder: Path, script: str, code: int) -> None:
    assert end(start(folder, "sh", "-c", script)) == code
    ended = RunFolder(str(folder)).end(2)
    assert ended is not None
    assert (ended.code, ended.was_told, ended.words) == (code, False, "out of tea")
    assert RunFolder(str(folder)).end(1) is None and not RunFolder(str(folder)).is_wrapped(1), (
        "what was of the run before is gone"
    )


def test_input_words_and_variables_are_as_they_were(folder: Path) -> None:
    program = (
        "import os,sys;print(sys.stdin.read(),sys.argv[1:],os.environ['HERE'],sorted(os.listdir('/proc/self/fd')))"
    )
    ran = start(folder, PYTHON, "-c", program, "a b", "$(x)", "'", stdin=subprocess.PIPE)
    out, _ = ran.communicate("input", 20)
    assert out == "input ['a b', '$(x)', \"'\"] yes ['0', '1', '2', '3']\n"


def test_signals_are_as_a_program_expects_them(folder: Path) -> None:
    """None is blocked or ignored that was not: a shell's background would ignore SIGINT, and Python ignores SIGPIPE."""
    program = "grep -E 'Sig(Blk|Ign)' /proc/self/status"
    inside, _ = start(folder, "sh", "-c", program).communicate(timeout=20)
    outside = subprocess.run(["sh", "-c", program], capture_output=True, text=True, check=True, restore_signals=True)
    assert inside == outside.stdout


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "USR1", "USR2", "QUIT"])
def test_signals_are_passed_on(folder: Path, name: str) -> None:
    program = f"trap 'echo got; exit 5' {name}; echo ready; while :; do sleep 0.05; done"
    ran = start(folder, "bash", "-c", program)
    assert ran.stdout is not None and ran.stdout.readline() == "ready\n"
    ran.send_signal(signal.Signals[f"SIG{name}"])
    out, _ = ran.communicate(timeout=20)
    assert (ran.returncode, out) == (5, "got\n")
    ended = RunFolder(str(folder)).end(2)
    assert ended is not None and ended.was_told is (name == "TERM")


def test_who_is_told_to_end_is_known_before_it_ends(folder: Path) -> None:
    ran = start(folder, "bash", "-c", "trap '' TERM; echo ready; exec sleep 2")
    assert ran.stdout is not None and ran.stdout.readline() == "ready\n"
    ran.terminate()
    until = time.monotonic() + 10
    while not RunFolder(str(folder)).was_told(2):
        assert time.monotonic() < until
        time.sleep(0.02)
    assert end(ran) == 0


def test_an_image_without_python_is_told_by_words_that_the_operator_knows(folder: Path, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    assert end(start(folder, "/bin/sh", "-c", "exit 4", path=str(tools))) == 126
    ended = RunFolder(str(folder)).end(2)
    assert ended is not None and (ended.code, ended.words) == (126, NO_PYTHON)


def test_an_image_with_python_2_alone_has_none(folder: Path, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    old = tools / "python"
    old.write_text('#!/bin/sh\n[ "$3" = pass ] || { echo "AttributeError" >&2; exit 1; }\n')
    old.chmod(0o755)
    assert end(start(folder, "/bin/sh", "-c", "exit 4", path=str(tools))) == 126
    ended = RunFolder(str(folder)).end(2)
    assert ended is not None and (ended.code, ended.words) == (126, NO_PYTHON)


def test_a_program_that_is_not_there_is_named(folder: Path) -> None:
    ran = start(folder, "no-such-program")
    _, said = ran.communicate(timeout=20)
    assert ran.returncode == 127
    assert said == "closeknit: cannot start no-such-program: No such file or directory\n"


def test_a_folder_that_cannot_be_written_keeps_nothing_from_running(tmp_path: Path) -> None:
    assert end(start(tmp_path / "gone", "sh", "-c", "exit 6")) == 6


MUSL = """
from _signal import *
import _signal

def signal(number, handler):
    if 32 <= number <= 34:
        raise OSError(22, "Invalid argument")
    return _signal.signal(number, handler)
"""


def test_an_image_with_musl_has_fewer_signals(folder: Path, tmp_path: Path) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "signal.py").write_text(MUSL)
    ran = start(folder, "sh", "-c", "exit 3", variables={"PYTHONPATH": str(modules)})
    assert end(ran) == 3
    assert RunFolder(str(folder)).end(2) is not None


def test_last_words_that_its_locale_cannot_write_keep_no_exit_code_away(folder: Path) -> None:
    (folder / "termination-log").write_bytes(b"no more \xe2\x98\x95 here")
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert end(start(folder, "sh", "-c", "exit 3", variables=ascii_only)) == 3
    ended = RunFolder(str(folder)).end(2)
    assert ended is not None and (ended.code, ended.words) == (3, "no more ??? here")
