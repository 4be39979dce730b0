"""The one control plane that has an operator, until the last test of this folder; each is a story in a namespace of its
own.
"""

import itertools
from collections.abc import Iterator

import pytest

from harness.operator_bed import DRA_NODES, PLUGIN_NODES, Bed, standing

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
