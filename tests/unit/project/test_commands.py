"""Every option of every command is in docs/reference/commands.md, and nothing else is."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from closeknit.agent.main import app as agent
from closeknit.cli.main import app as cli
from closeknit.controller.main import _parser

PAGE = Path(__file__).parents[3] / "docs/reference/commands.md"


def documented(command: str) -> set[str]:
    """The options of one section."""
    sections = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    (section,) = (text for text in sections if text.partition("\n")[0] == command)
    rows = re.findall(r"^\| (`-[^|]*) \|", section, re.MULTILINE)
    return {option for row in rows for option in re.findall(r"`([^`]+)`", row)}


def options() -> dict[str, set[str]]:
    """Of each command, without those for help."""
    found = {"closeknit-operator": {name for action in _parser()._actions for name in action.option_strings}}
    for program, app in (("closeknit", get_command(cli)), ("closeknit-agent", get_command(agent))):
        commands = {program: app} | {f"{program} {name}": each for name, each in getattr(app, "commands", {}).items()}
        for name, each in commands.items():
            found[name] = {option for parameter in each.params for option in parameter.opts if option[0] == "-"}
    return {name: found[name] - {"--help", "-h"} for name in found if found[name] - {"--help", "-h"}}


@pytest.mark.parametrize(("command", "expected"), options().items(), ids=options())
def test_options(command: str, expected: set[str]) -> None:
    assert documented(command) == expected


def test_every_section_is_a_command() -> None:
    assert set(re.findall(r"^## (.+)$", PAGE.read_text(), re.MULTILINE)) == set(options())
