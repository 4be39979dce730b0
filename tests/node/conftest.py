"""Real nodes that all tests of this folder share; they end with the last of them, since a kubelet is never at rest."""

from collections.abc import Iterator

import pytest

from harness.install import free_port, start_operator
from harness.local_cluster import LocalCluster
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
        jobs.pid = start_operator(stand.cluster, jobs.port, *jobs.options)
        yield jobs


@pytest.fixture
def nothing_is_left(jobs: Jobs) -> Iterator[None]:
    """Of the test's story, wherever it ended."""
    yield
    jobs.clear()


@pytest.fixture
def no_pods_are_left(node_cluster: LocalCluster) -> Iterator[None]:
    """Of those that the test made in the namespace `default`, wherever it ended."""
    yield
    node_cluster.kubectl("delete", "pods", "--all", "--namespace=default", "--wait")
