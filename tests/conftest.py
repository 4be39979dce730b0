"""What all tests share: the control plane that they run on, and the rule of what may be skipped.

`root`, `nodes`, `hardware` and `long` are markers (pyproject.toml). `pytest` alone runs what needs only Python; whoever
names a folder, as `make test` does, gets what is in there. The last line of a run says what was skipped or not asked
for and why, so that a green run cannot hide that half of it did not happen; `--require-all` fails one that left out
more than the machine lacks.

A test of real programs that fails runs once more. One that then passes is unsteady: the last lines name it, for whoever
reads them to mend. A test of the pure core never runs twice.
"""

import itertools
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from harness import browser as chromium

if TYPE_CHECKING:
    from harness.local_cluster import LocalCluster

HOW_TO_RUN = {
    "browser": "no Chromium: Debian's package, or CLOSEKNIT_CHROMIUM",
    "hardware": "no GPUs: run by hand with --hardware",
    "mock_nvml": "no mock NVML: name its folder in CLOSEKNIT_MOCK_NVML",
    "nodes": "run as root on a machine that can run kubelets: tests/node/README.md",
    "root": "run as root",
    "other": "their reasons are above",
}
# No option and no user gives these to a machine: GPUs, a library of NVIDIA's that is not ours to build, a kernel that
# lets a process have namespaces and cgroups, and a browser.
LACKING = {"browser", "hardware", "mock_nvml", "nodes"}
# Folders whose tests start no program and wait for no clock: what fails there once is wrong.
PURE = {"unit", "scenarios", "contracts", "lives", "fuzz"}
LONG_TESTS_LEFT_OUT = "long_tests_left_out"
long_tests_left_out = pytest.StashKey[int]()
namespace_serials = itertools.count()
# How long a machine takes to draw or to try an example says how busy it is, nothing of what is tested.
settings.register_profile("closeknit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("closeknit")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("closeknit")
    group.addoption("--hardware", action="store_true", help="run the tests that need real GPUs, too")
    group.addoption("--long", action="store_true", help="run the long forms of the tests, too")
    group.addoption("--seed", type=int, help="tests/lives: the life of this seed alone")
    group.addoption("--require-all", action="store_true", help="fail if anything but what the machine lacks is skipped")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # one of several processes (pytest-xdist)
        from harness.alone import Alone  # noqa: PLC0415 - only there

        config.pluginmanager.register(Alone(Path(config.option.basetemp).parent))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("hardware") and not config.getoption("--hardware"):
            item.add_marker(pytest.mark.skip(reason="needs real GPUs: --hardware"))
        elif item.get_closest_marker("mock_nvml") and not _has_mock_nvml():
            item.add_marker(pytest.mark.skip(reason="needs NVIDIA's mock NVML: CLOSEKNIT_MOCK_NVML"))
        elif item.get_closest_marker("browser") and chromium.program() is None:
            item.add_marker(pytest.mark.skip(reason="needs Chromium: Debian's package, or CLOSEKNIT_CHROMIUM"))
        elif item.get_closest_marker("root") and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="needs root"))
        if PURE.isdisjoint(item.path.relative_to(config.rootpath).parts):
            item.add_marker(pytest.mark.flaky(reruns=1))
    # The long form of a test has a short one that runs: leaving it out is not skipping anything.
    long = [] if config.getoption("--long") else [item for item in items if item.get_closest_marker("long")]
    config.stash[long_tests_left_out] = len(long)
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if hasattr(config, "workeroutput"):  # only such a process collects
        config.workeroutput[LONG_TESTS_LEFT_OUT] = config.stash.get(long_tests_left_out, 0)
    is_whole = set(_skipped(config)) <= LACKING and not _is_python_alone(config)
    if config.getoption("--require-all") and not is_whole and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """In the process that reports, when one of those that test has ended: each has collected everything."""
    left_out = getattr(node, "workeroutput", {}).get(LONG_TESTS_LEFT_OUT, 0)  # no output: it crashed
    node.config.stash[long_tests_left_out] = max(left_out, node.config.stash.get(long_tests_left_out, 0))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints what tests have measured, `record_property("measured", words)`, by several processes, too."""
    passed: list[pytest.TestReport] = terminalreporter.stats.get("passed", [])
    for report in passed:
        for name, words in report.user_properties:
            if name == "measured":
                terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {words}")


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Prints the last lines: after pytest's own summary."""
    if not config.option.collectonly and config.pluginmanager.has_plugin("terminalreporter"):
        if unsteady := _unsteady(config):
            config.get_terminal_writer().line(f"unsteady: {', '.join(unsteady)}")
        config.get_terminal_writer().line(_last_line(config))


def _unsteady(config: pytest.Config) -> list[str]:
    """The tests that failed and then passed, by name."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    stats = {} if reporter is None else reporter.stats
    failed = {report.nodeid for kind in ("failed", "error") for report in stats.get(kind, ())}
    return sorted({report.nodeid for report in stats.get("rerun", ())} - failed)


def _last_line(config: pytest.Config) -> str:
    skipped = _skipped(config)
    reasons = [f"{skipped[kind]} {kind} ({how})" for kind, how in HOW_TO_RUN.items() if skipped[kind]]
    if set(skipped) <= LACKING:
        line = " ".join(["nothing skipped", *(f"but {reason}" for reason in reasons)])
    else:
        line = f"skipped: {', '.join(reasons)}"
    is_whole = set(skipped) <= {"browser", "hardware", "mock_nvml"} and not _is_python_alone(config)
    if _is_python_alone(config):
        line += "; only what needs nothing but Python (all: make test)"
    if config.getoption("--require-all") and not is_whole:
        line += "; --require-all: that is a failure"
    long = config.stash.get(long_tests_left_out, 0)
    return f"{line}; {long} long left out (--long)" if long else line


def _has_mock_nvml() -> bool:
    folder = os.environ.get("CLOSEKNIT_MOCK_NVML")
    return folder is not None and Path(folder, "libnvidia-ml.so.1").is_file()


def _is_python_alone(config: pytest.Config) -> bool:
    """Whether nothing was named to run, so that pyproject.toml's testpaths were."""
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS


def _skipped(config: pytest.Config) -> Counter[str]:
    """How many tests (or, where a whole file was skipped, files) were skipped, by the kind of reason."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reports = reporter.stats.get("skipped", []) if reporter is not None else []
    kinds = ("hardware", "mock_nvml", "nodes", "root")
    # The report of a file that skipped itself as a whole has no keywords.
    keywords = [getattr(report, "keywords", ()) for report in reports]
    return Counter(next((kind for kind in kinds if kind in words), "other") for words in keywords)


@pytest.fixture(scope="session")
def local_cluster(pytestconfig: pytest.Config) -> Iterator["LocalCluster"]:
    """The control plane that the whole run shares: use names of your own in it, or a `namespace`."""
    from harness.build import ensure_built  # noqa: PLC0415 - unit tests need none of it, and start faster without
    from harness.local_cluster import LocalCluster  # noqa: PLC0415

    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():  # a first build takes minutes: show its progress
        ensure_built()
    with LocalCluster() as cluster:
        yield cluster


@pytest.fixture
def namespace(local_cluster: "LocalCluster") -> Iterator[str]:
    """A fresh namespace of the shared control plane, in which Pods can be created at once."""
    name = f"test-{next(namespace_serials)}"
    local_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    local_cluster.wait_for_default_account(name)
    yield name
    local_cluster.delete("namespace", name)
