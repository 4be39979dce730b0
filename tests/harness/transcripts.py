"""`python -m harness.transcripts` writes what commands print into the pages that show it.

A page has blocks of ```console with lines `$ closeknit ...`, or `$ uv run closeknit ...`. What stands below such a line
is what that prints.
"""

import re
import shlex
from pathlib import Path

from typer.testing import CliRunner

from closeknit.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = ("docs/reference/commands.md", "README.md")
_BLOCK = re.compile(r"(```console\n)(\$ (?:uv run )?closeknit .*?)(```)", re.DOTALL)
_COMMAND = re.compile(r"\$ (uv run )?closeknit (.*)")


def printed(command: str) -> str:
    """What it prints in 80 columns, trailing blanks aside."""
    result = CliRunner().invoke(app, shlex.split(command), env={"COLUMNS": "80"})
    return "".join(f"{line.rstrip()}\n" for line in (result.stdout + result.stderr).splitlines())


def text(page: str) -> str:
    """The page, with what its commands print now. The working folder is that of the repository."""

    def block(found: re.Match[str]) -> str:
        commands = _COMMAND.finditer(found[2])
        return found[1] + "".join(f"{each[0]}\n{printed(each[2])}" for each in commands) + found[3]

    return _BLOCK.sub(block, (ROOT / page).read_text())


if __name__ == "__main__":
    for each in PAGES:
        (ROOT / each).write_text(text(each))
