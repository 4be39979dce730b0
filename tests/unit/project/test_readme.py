"""What the README shows of `closeknit plan` is what it prints, trailing blanks aside."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from closeknit.cli.main import app

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"```console\n(\$ uv run closeknit plan.*?)```", re.DOTALL)
SHOWN = re.compile(r"\$ uv run closeknit (.*)\n((?:[^$].*\n)*)")


def test_the_first_taste_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (block,) = BLOCK.findall((ROOT / "README.md").read_text())
    shown = SHOWN.findall(block)
    assert len(shown) == 2
    for command, output in shown:
        result = CliRunner().invoke(app, shlex.split(command), env={"COLUMNS": "80"})
        assert [line.rstrip() for line in result.stdout.splitlines()] == output.splitlines()
