"""Real nodes that the tests of a file share; they end with it, since a kubelet at rest is not at rest."""

from collections.abc import Iterator

import pytest

from harness.local_cluster import LocalCluster
from harness.node.local_node import LocalNode
from harness.node.projects import NoNodes, node_programs


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


@pytest.fixture(scope="module")
def node_cluster(node_machine: None) -> Iterator[LocalCluster]:  # noqa: ARG001 - it skips
    """A control plane that real nodes can join."""
    with LocalCluster(with_nodes=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def node(node_cluster: LocalCluster) -> Iterator[LocalNode]:
    """One node; a test that starts programs on it stops them."""
    with LocalNode(node_cluster, "node-1", 1) as node:
        yield node


@pytest.fixture(scope="module")
def nodes(node_cluster: LocalCluster) -> Iterator[tuple[LocalNode, LocalNode]]:
    """Two nodes, as above."""
    with LocalNode(node_cluster, "node-1", 1) as one, LocalNode(node_cluster, "node-2", 2) as other:
        yield one, other
