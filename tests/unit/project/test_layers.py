"""The layer contracts of pyproject.toml hold, each of them is seen to fail, and nothing hides a source root."""

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path

import grimp
import pytest
from importlinter.api import read_configuration
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract
from importlinter.domain.contract import Contract

ROOT = Path(__file__).parents[3]
SOURCES = ("crds/src", "operator/src", "node-agent/src")
CONFIGURATION = read_configuration(str(ROOT / "pyproject.toml"))
KINDS: Mapping[str, type[Contract]] = {"layers": LayersContract, "forbidden": ForbiddenContract}


def contracts() -> list[Contract]:
    session = CONFIGURATION["session_options"]
    return [KINDS[options["type"]](options["name"], session, options) for options in CONFIGURATION["contracts_options"]]


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Who imports whom, as the sources are."""
    roots = CONFIGURATION["session_options"]["root_packages"]
    return grimp.build_graph(*roots, include_external_packages=True, cache_dir=None)


def broken(graph: grimp.ImportGraph) -> list[str]:
    # A check takes the imports that its contract ignores out of the graph.
    return [contract.name for contract in contracts() if not contract.check(deepcopy(graph), verbose=False).kept]


def test_the_contracts_hold(graph: grimp.ImportGraph) -> None:
    assert broken(graph) == []


# (who imports, whom or None for a new module, the contract that forbids it)
BROKEN = [
    pytest.param(
        "closeknit.placement.place", "closeknit.launch.pod", "The operator's layers", id="placement reaches for launch"
    ),
    pytest.param("closeknit.placement.place", "random", "Decisions are pure", id="a decision reaches for chance"),
    pytest.param(
        "closeknit.kube.http", "closeknit.cluster.cluster", "The kube door knows no kinds", id="the door learns a kind"
    ),
    pytest.param(
        "closeknit.kube.http",
        "closeknit.runtime.logs",
        "Only the shells touch the API server",
        id="the door reaches for what stands on it",
    ),
    pytest.param(
        "closeknit.runtime.web",
        "closeknit.machine.graph",
        "The runtime knows no work",
        id="the runtime reaches for machines",
    ),
    pytest.param(
        "closeknit.api.names",
        "closeknit.kube.api",
        "Only the shells touch the API server",
        id="the contract reaches for the API server",
    ),
    pytest.param(
        "closeknit.machine.graph",
        "closeknit.agent.discovery.readings",
        "The agent stands on machine",
        id="machine reaches for the agent",
    ),
    pytest.param(
        "closeknit.agent.discovery.pci", "closeknit.agent.sysfs", "The agent's layers", id="discovery reads for itself"
    ),
    pytest.param("closeknit.agent.unplaced", None, "The agent's layers", id="a module of the agent has no layer"),
    pytest.param("closeknit.agent.discovery.pci", "pathlib", "Discovery is pure", id="discovery reaches for files"),
    pytest.param(
        "closeknit.cli.asking",
        "closeknit.controller.loop",
        "The operator's layers",
        id="a command reaches for the operator's process",
    ),
    pytest.param(
        "closeknit.agent.publish",
        "closeknit.placement.place",
        "The agent imports nothing of the operator's",
        id="the agent reaches for placement",
    ),
    pytest.param(
        "closeknit.cli.plan", "closeknit.kube.http", "closeknit plan needs no cluster", id="plan reaches for a cluster"
    ),
    pytest.param(
        "closeknit.cli.manifest",
        "kubernetes",
        "closeknit plan needs no cluster",
        id="what plan stands on reaches for a cluster",
    ),
    pytest.param(
        "closeknit.simulation.replay", "closeknit.cli.table", "Only the command simulates", id="a simulation prints"
    ),
    pytest.param(
        "closeknit.lifecycle.schedule",
        "closeknit.simulation.replay",
        "Nothing decides by a simulation",
        id="a decision simulates",
    ),
    pytest.param(
        "closeknit.simulation.operated",
        "closeknit.kube.http",
        "A simulation needs no cluster",
        id="a simulation reaches for a cluster",
    ),
    pytest.param(
        "closeknit.launch.preflight",
        "closeknit.launch.preflight_program",
        "No code imports the preflight's program",
        id="the program of a Pod is imported here",
    ),
]


@pytest.mark.parametrize(("module", "imported", "contract"), BROKEN)
def test_a_contract_that_is_broken_on_purpose_is_red(
    graph: grimp.ImportGraph, module: str, imported: str | None, contract: str
) -> None:
    changed = deepcopy(graph)
    if imported is None:
        assert module not in changed.modules
        changed.add_module(module)
    else:
        assert module in changed.modules
        changed.add_import(importer=module, imported=imported)
    assert contract in broken(changed)


def test_every_contract_has_been_seen_red() -> None:
    assert {contract.name for contract in contracts()} == {case.values[2] for case in BROKEN}


def test_a_command_that_is_not_plan_may_use_the_cluster(graph: grimp.ImportGraph) -> None:
    changed = deepcopy(graph)
    changed.add_import(importer="closeknit.cli.asking", imported="closeknit.kube.http")
    assert broken(changed) == []


@pytest.mark.parametrize("path", ["operator/__init__.py", *(f"{source}/closeknit/__init__.py" for source in SOURCES)])
def test_nothing_hides_a_source_root_or_the_standard_library(path: str) -> None:
    assert not (ROOT / path).exists()
