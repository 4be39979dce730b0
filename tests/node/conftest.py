"""Real nodes that all tests of this folder share; they end with the last of them, since a kubelet is never at rest."""

from collections.abc import Iterator

import pytest

from harness.install import free_port, start_operator
from harness.local_cluster import LocalCluster
from harness.node.host_python import AGENT_IMAGE
from harness.node.local_node import LocalNode
from harness.node.projects import NoNodes, node_programs
from harness.node.stand import Stand, standing
from node.jobs import Jobs


@pytest.fixture(scope="session")
def node_machine(pytestconfig: pytest.Config) -> None:
    """Skips where this machine cannot run nodes, and brings their programs where it can."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():  # a first build takes minutes: show its progress
        try:
            node_programs()
        except NoNodes as reason:
            pytest.skip(f"no real nodes here: {reason}")


@pytest.fixture(scope="package")
def stand(node_machine: None) -> Iterator[Stand]:  # noqa: ARG001 - it skips
    """Two nodes with the chart. A test ends what it starts there, and offers GPUs for as long as it needs them."""
    with standing() as stand:
        yield stand


@pytest.fixture(scope="package")
def node_cluster(stand: Stand) -> LocalCluster:
    """Its control plane."""
    return stand.cluster


@pytest.fixture(scope="package")
def node(stand: Stand) -> LocalNode:
    """The first of its nodes."""
    return stand.nodes[0]


@pytest.fixture(scope="package")
def nodes(stand: Stand) -> tuple[LocalNode, LocalNode]:
    """Both."""
    one, other = stand.nodes
    return one, other


@pytest.fixture(scope="package")
def jobs(stand: Stand) -> Iterator[Jobs]:
    """The chart's agents on both nodes, and an operator."""
    with stand.agents_running():
        jobs = Jobs(stand.cluster, free_port(), stand=stand)
        jobs.pid = start_operator(stand.cluster, jobs.port, f"--sidecar-image={AGENT_IMAGE}")
        yield jobs


@pytest.fixture
def no_reports(jobs: Jobs) -> Iterator[None]:
    """No file that ranks leave or wait for when a test begins, and no job `train` when it ends."""
    for node in jobs.stand.nodes:
        for file in node.reports.glob("*"):
            file.unlink()
    yield
    jobs.cluster.kubectl("delete", "trainingjobs", "--all", f"--namespace={jobs.namespace}")
    jobs.wait_for_nothing()
