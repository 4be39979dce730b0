"""`python -m harness.transcripts` writes what commands print into the pages that show it.

A page has blocks of ```console with lines `$ closeknit ...`. What stands below such a line is what that prints.
"""

import re
import shlex
from pathlib import Path

from typer.testing import CliRunner

from closeknit.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = ("docs/reference/commands.md",)
_BLOCK = re.compile(r"(```console\n)(\$ closeknit .*?)(```)", re.DOTALL)


def printed(command: str) -> str:
    """What it prints in 80 columns, trailing blanks aside."""
    result = CliRunner().invoke(app, shlex.split(command), env={"COLUMNS": "80"})
    return "".join(f"{line.rstrip()}\n" for line in (result.stdout + result.stderr).splitlines())


def text(page: str) -> str:
    """The page, with what its commands print now. The working folder is that of the repository."""

    def block(found: re.Match[str]) -> str:
        commands = [line.removeprefix("$ closeknit ") for line in found[2].splitlines() if line.startswith("$ ")]
        return found[1] + "".join(f"$ closeknit {each}\n{printed(each)}" for each in commands) + found[3]

    return _BLOCK.sub(block, (ROOT / page).read_text())


if __name__ == "__main__":
    for each in PAGES:
        (ROOT / each).write_text(text(each))
