"""The one control plane that has an operator, until the last test of this folder: each is a story in a namespace of its
own. And the shared one with our CRDs.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.kubectl import KubectlError
from harness.local_cluster import LocalCluster
from harness.operator_bed import DRA_NODES, PLUGIN_NODES, Bed, standing

CRDS = Path(__file__).parents[2] / "crds"
serials = itertools.count()


@pytest.fixture(scope="package")
def running() -> Iterator[Bed]:
    with standing(Bed, PLUGIN_NODES, DRA_NODES) as bed:
        yield bed


@pytest.fixture
def bed(running: Bed) -> Iterator[Bed]:
    running.begin(f"story-{next(serials)}")
    yield running
    running.cluster.delete("trainingjobs", namespace=running.namespace)
    running.cluster.delete("namespace", running.namespace)
    running.cluster.wait_for(
        lambda: not [pod for pod in running.all("pods") if pod["status"].get("phase") not in {"Succeeded", "Failed"}],
        "the story's Pods to be gone",
    )


@pytest.fixture(scope="package")
def crds(local_cluster: LocalCluster) -> LocalCluster:
    """The API server with our CRDs."""
    local_cluster.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={CRDS}")
    local_cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", f"--filename={CRDS}")
    # Established is said a moment before every handler of the API server knows the kind.
    kinds = "trainingjobs,nodetopologies,clustertopologies"
    local_cluster.wait_for(lambda: _is_served(local_cluster, kinds), f"{kinds} to be served")
    return local_cluster


def _is_served(cluster: LocalCluster, kinds: str) -> bool:
    try:
        cluster.get(kinds)
    except KubectlError:
        return False
    return True
