"""docs/topology.md shows what `closeknit topology` prints, trailing blanks aside."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from closeknit.agent.sources.simulated import profile_names
from closeknit.cli.main import app

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/topology.md").read_text()
CLUSTER = "examples/cluster.yaml"


def printed(arguments: list[str]) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return "".join(f"{line.rstrip()}\n" for line in result.stdout.splitlines())


def test_the_table_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    ((command, output),) = re.findall(r"```console\n\$ uv run closeknit ([^\n]*)\n(.*?)```", PAGE, re.DOTALL)
    assert printed(shlex.split(command)) == output


@pytest.mark.parametrize("picture", re.findall(r"\((pictures/topology-[^)]+)\)", PAGE))
def test_the_pictures_are_true(picture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    node = picture.removeprefix("pictures/topology-").removesuffix(".svg")
    drawn = printed(["topology", node, "-f", CLUSTER, "-o", "svg"])
    assert (ROOT / "docs" / picture).read_text() == drawn, (
        f"run: uv run closeknit topology {node} -f {CLUSTER} -o svg > docs/{picture}"
    )


def test_the_page_of_profiles_names_each_once() -> None:
    rows = re.findall(r"^\| [^|]+ \| ((?:`[a-z0-9-]+` ?)+)\|$", (ROOT / "docs/profiles.md").read_text(), re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall(r"`([^`]+)`", row)) == profile_names()
