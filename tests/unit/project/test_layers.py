"""The layer contracts of pyproject.toml hold, each of them is seen to fail, and nothing hides a source root."""

from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from graphlib import CycleError, TopologicalSorter
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
MOST_FILES = 12  # in a folder of sources: one noun
DATA = {"profiles", "without_cuda"}  # folders of data


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
    ("closeknit.placement.place", "closeknit.launch.manifests.pod_manifest", "The operator's layers"),
    ("closeknit.lifecycle.follow", "closeknit.scheduling.schedule", "The operator's layers"),
    ("closeknit.cli.live.cluster_objects", "closeknit.controller.loop", "The operator's layers"),
    ("closeknit.placement.place", "random", "Decisions are pure"),
    ("closeknit.scheduling.queue.room", "time", "Decisions are pure"),
    ("closeknit.lifecycle.topology_status", "closeknit.kube.api", "Decisions are pure"),
    ("closeknit.scheduling.schedule", "closeknit.runtime.proxied_caller", "Decisions are pure"),
    ("closeknit.agent.publish", "closeknit.simulation.replay", "The agent imports nothing of the operator's"),
    (
        "closeknit.lifecycle.status.degraded",
        "closeknit.api.crd.rules",
        "The CRDs are made once, by make generate: it takes a third of the time that a command has to start",
    ),
    ("closeknit.kube.http.http_api", "closeknit.cluster.cluster", "The kube client knows no kinds"),
    ("closeknit.kube.http.http_api", "closeknit.runtime.logs", "Only the shells touch the API server"),
    ("closeknit.api.names", "closeknit.kube.api", "Only the shells touch the API server"),
    ("closeknit.runtime.web", "closeknit.machine.graph", "The runtime knows no work"),
    ("closeknit.machine.graph", "closeknit.agent.discovery.readings.readings", "The agent stands on machine"),
    ("closeknit.placement.allreduce.rings", "closeknit.placement.gang.search", "Inside placement"),
    ("closeknit.placement.unplaced", None, "Inside placement"),
    ("closeknit.launch.frameworks.jax", "closeknit.launch.manifests.pod_manifest", "Inside launch"),
    ("closeknit.launch.unplaced", None, "Inside launch"),
    ("closeknit.lifecycle.attempt.attempt", "closeknit.lifecycle.health.attempt_end", "Inside lifecycle"),
    ("closeknit.lifecycle.unplaced", None, "Inside lifecycle"),
    ("closeknit.scheduling.memo.questions", "closeknit.scheduling.policy.gates", "Inside scheduling"),
    ("closeknit.scheduling.unplaced", None, "Inside scheduling"),
    ("closeknit.webmap.map_rows", "closeknit.webmap.scene", "Inside the map"),
    ("closeknit.webmap.unplaced", None, "Inside the map"),
    ("closeknit.scheduling.schedule", "closeknit.webmap.scene", "Nothing decides by the map"),
    ("closeknit.cluster.pods.pod", "closeknit.cluster.node.view", "Inside cluster"),
    ("closeknit.cluster.unplaced", None, "Inside cluster"),
    ("closeknit.agent.discovery.readings.pci", "closeknit.agent.discovery.topology", "Inside discovery"),
    ("closeknit.agent.discovery.unplaced", None, "Inside discovery"),
    ("closeknit.agent.discovery.readings.pci", "closeknit.agent.sysfs.kernel", "Inside the agent"),
    ("closeknit.agent.unplaced", None, "Inside the agent"),
    ("closeknit.agent.discovery.readings.pci", "pathlib", "Discovery is pure"),
    ("closeknit.agent.publish", "closeknit.placement.place", "The agent imports nothing of the operator's"),
    ("closeknit.sidecar.ras", "msgspec", "The sidecar stands alone: it has to start in an instant"),
    ("closeknit.cli.plan.plan_decision", "closeknit.kube.http.http_api", "closeknit plan needs no cluster"),
    ("closeknit.cli.input.manifest", "kubernetes", "closeknit plan needs no cluster"),
    ("closeknit.cli.explain.command", "closeknit.client.seen_job", "Nothing stands on the client"),
    (
        "closeknit.client.job_draft",
        "closeknit.controller.loop",
        "The client asks a cluster, and is none of its programs",
    ),
    ("closeknit.simulation.replay", "closeknit.cli.plan.plan_table", "Only the command simulates"),
    ("closeknit.scheduling.schedule", "closeknit.simulation.replay", "Nothing decides by a simulation"),
    ("closeknit.simulation.operated", "closeknit.kube.http.http_api", "A simulation needs no cluster"),
    (
        "closeknit.launch.manifests.preflight_container",
        "closeknit.launch.manifests.preflight_program",
        "No code imports the preflight's program",
    ),
]


@pytest.mark.parametrize(("module", "imported", "contract"), BROKEN, ids=[f"{a} -> {b}" for a, b, _ in BROKEN])
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
    assert {contract.name for contract in contracts()} == {contract for *_, contract in BROKEN}


def test_a_command_that_is_not_plan_may_use_the_cluster(graph: grimp.ImportGraph) -> None:
    changed = deepcopy(graph)
    changed.add_import(importer="closeknit.cli.live.cluster_objects", imported="closeknit.kube.http.http_api")
    assert broken(changed) == []


def test_no_modules_import_each_other_in_a_circle(graph: grimp.ImportGraph) -> None:
    ours = [module for module in graph.modules if module.startswith("closeknit.")]
    assert circle({module: graph.find_modules_directly_imported_by(module) for module in ours}) is None


def test_no_folders_import_each_other_in_a_circle(graph: grimp.ImportGraph) -> None:
    """A folder imports those below it and the files beside it; a file of the folder above is above it."""
    folders: dict[str, set[str]] = {}
    for module in graph.modules:
        if module.startswith("closeknit.") and not graph.find_children(module):
            folder = module.rpartition(".")[0]
            for imported in graph.find_modules_directly_imported_by(module):
                if imported.startswith("closeknit."):
                    other = imported if graph.find_children(imported) else imported.rpartition(".")[0]
                    folders.setdefault(folder, set()).add(other)
    folders = {folder: others - {folder} for folder, others in folders.items()}
    assert circle(folders) is None


def circle(imports: Mapping[str, set[str]]) -> list[str] | None:
    """The names of one circle; None where there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return None


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) is not None
    assert circle({"a": {"b"}, "b": {"c"}}) is None


def test_no_folder_has_more_files_than_a_noun_needs() -> None:
    files = Counter(
        path.parent.relative_to(ROOT).as_posix()
        for source in SOURCES
        for path in (ROOT / source).rglob("*.py")
        if path.name != "__init__.py" and path.parent.name not in DATA
    )
    assert {folder: number for folder, number in files.items() if number > MOST_FILES} == {}


@pytest.mark.parametrize("path", ["operator/__init__.py", *(f"{source}/closeknit/__init__.py" for source in SOURCES)])
def test_nothing_hides_a_source_root_or_the_standard_library(path: str) -> None:
    assert not (ROOT / path).exists()
