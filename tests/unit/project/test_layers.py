"""The layer contracts of pyproject.toml hold, each of them is seen to fail, and nothing hides a source root."""

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = ("crds/src", "operator/src", "node-agent/src")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources and of the contracts."""
    copy = tmp_path_factory.mktemp("tree")
    shutil.copy(ROOT / "pyproject.toml", copy)
    for source in SOURCES:
        shutil.copytree(ROOT / source, copy / source, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def lint_imports(tree: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=tree,
        env={"PYTHONPATH": ":".join(str(tree / source) for source in SOURCES), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_contracts_hold(tree: Path) -> None:
    answer = lint_imports(tree)
    assert answer.returncode == 0, answer.stdout
    assert "0 broken" in answer.stdout


@contextmanager
def added(path: Path, line: str) -> Iterator[None]:
    """The module with one line more, or a new one of that line, for a while."""
    text = path.read_text() if path.exists() else None
    path.write_text(f"{text or ''}\n{line}\n")
    try:
        yield
    finally:
        path.unlink()
        if text is not None:
            path.write_text(text)


BROKEN = [
    pytest.param(
        "operator/src/closeknit/placement/place.py",
        "import closeknit.launch.pod",
        "The operator's layers",
        id="placement reaches for launch",
    ),
    pytest.param(
        "operator/src/closeknit/placement/place.py",
        "import random",
        "Decisions are pure",
        id="a decision reaches for chance",
    ),
    pytest.param(
        "crds/src/closeknit/kube/http.py",
        "import closeknit.cluster.cluster",
        "The kube door knows no kinds",
        id="the door learns a kind",
    ),
    pytest.param(
        "crds/src/closeknit/kube/http.py",
        "import closeknit.runtime.logs",
        "Only the shells touch the API server",
        id="the door reaches for what stands on it",
    ),
    pytest.param(
        "crds/src/closeknit/runtime/web.py",
        "import closeknit.machine.graph",
        "The runtime knows no work",
        id="the runtime reaches for machines",
    ),
    pytest.param(
        "crds/src/closeknit/api/names.py",
        "import closeknit.kube.api",
        "Only the shells touch the API server",
        id="the contract reaches for the API server",
    ),
    pytest.param(
        "crds/src/closeknit/machine/graph.py",
        "import closeknit.agent.discovery.readings",
        "The agent stands on machine",
        id="machine reaches for the agent",
    ),
    pytest.param(
        "node-agent/src/closeknit/agent/discovery/pci.py",
        "import closeknit.agent.sysfs",
        "The agent's layers",
        id="discovery reads for itself",
    ),
    pytest.param(
        "node-agent/src/closeknit/agent/unplaced.py",
        "",
        "The agent's layers",
        id="a module of the agent has no layer",
    ),
    pytest.param(
        "node-agent/src/closeknit/agent/discovery/pci.py",
        "import pathlib",
        "Discovery is pure",
        id="discovery reaches for files",
    ),
    pytest.param(
        "operator/src/closeknit/cli/live.py",
        "import closeknit.controller.loop",
        "The operator's layers",
        id="a command reaches for the operator's process",
    ),
    pytest.param(
        "node-agent/src/closeknit/agent/publish.py",
        "import closeknit.placement.place",
        "The agent imports nothing of the operator's",
        id="the agent reaches for placement",
    ),
    pytest.param(
        "operator/src/closeknit/cli/plan.py",
        "import closeknit.kube.http",
        "closeknit plan needs no cluster",
        id="plan reaches for a cluster",
    ),
    pytest.param(
        "operator/src/closeknit/cli/manifest.py",
        "import kubernetes",
        "closeknit plan needs no cluster",
        id="what plan stands on reaches for a cluster",
    ),
    pytest.param(
        "operator/src/closeknit/simulation/replay.py",
        "import closeknit.cli.table",
        "Only the command simulates",
        id="a simulation prints",
    ),
    pytest.param(
        "operator/src/closeknit/lifecycle/schedule.py",
        "import closeknit.simulation.replay",
        "Nothing decides by a simulation",
        id="a decision simulates",
    ),
    pytest.param(
        "operator/src/closeknit/simulation/operated.py",
        "import closeknit.kube.http",
        "A simulation needs no cluster",
        id="a simulation reaches for a cluster",
    ),
    pytest.param(
        "operator/src/closeknit/launch/preflight.py",
        "import closeknit.launch.preflight_program",
        "No code imports the preflight's program",
        id="the program of a Pod is imported here",
    ),
]


@pytest.mark.parametrize(("module", "line", "contract"), BROKEN)
def test_a_contract_that_is_broken_on_purpose_is_red(tree: Path, module: str, line: str, contract: str) -> None:
    with added(tree / module, line):
        answer = lint_imports(tree)
    assert answer.returncode == 1
    assert f"{contract} BROKEN" in answer.stdout


def test_every_contract_has_been_seen_red() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert {contract["name"] for contract in contracts} == {case.values[2] for case in BROKEN}


def test_a_command_that_is_not_plan_may_use_the_cluster(tree: Path) -> None:
    with added(tree / "operator/src/closeknit/cli/live.py", "import closeknit.kube.http"):
        answer = lint_imports(tree)
    assert answer.returncode == 0, answer.stdout


@pytest.mark.parametrize("path", ["operator/__init__.py", *(f"{source}/closeknit/__init__.py" for source in SOURCES)])
def test_nothing_hides_a_source_root_or_the_standard_library(path: str) -> None:
    assert not (ROOT / path).exists()
