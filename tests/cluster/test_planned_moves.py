"""A job that allows it moves so that a gang that waits starts, on a real control plane, with the operator killed
meanwhile."""

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from closeknit.lifecycle.status.conditions import timestamp
from harness.operator_bed import Bed

BOTH = pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"gpu": {"products": ["NVIDIA-H200"]}}, id="plugin"),
        pytest.param({"gpu": {"binding": "DRA"}}, id="DRA"),
    ],
)
WHOLE_NODE: dict[str, Any] = {"gpus": 8, "topology": {"gpusPerNode": 8}}
serials = itertools.count()


@pytest.fixture
def site(running: Bed) -> Iterator[Bed]:
    running.begin(f"moves-{next(serials)}")
    yield running
    running.cluster.delete("trainingjobs", namespace=running.namespace)
    running.cluster.kubectl("delete", "pods", "--all", f"--namespace={running.namespace}", "--force")
    running.cluster.delete("namespace", running.namespace)


def ends(site: Bed, name: str) -> list[tuple[str, bool]]:
    return [(each["reason"], each["charged"]) for each in site.job(name)["status"].get("attempts", [])]


def nodes(site: Bed, name: str) -> list[str]:
    return [each["name"] for each in site.job(name)["status"]["placement"]["nodes"]]


def has_waited(site: Bed, name: str) -> None:
    """It has waited for an hour."""
    since = timestamp(datetime.now(UTC) - timedelta(hours=1))
    pending = {"status": {"pending": {"since": since, "queuedSince": since}}}
    site.cluster.patch("trainingjob", name, pending, site.namespace, subresource="status")


@BOTH
def test_a_gang_starts_by_a_move_though_the_operator_is_killed_meanwhile(site: Bed, spec: dict[str, Any]) -> None:
    for name in ("x", "y", "z"):
        site.submit(name, **spec, gpus=4, defragment="Planned" if name == "z" else "Never")
        site.wait_for_state("Running", name)
    (first, second), there = sorted({nodes(site, "x")[0], nodes(site, "z")[0]}), nodes(site, "z")
    assert nodes(site, "x") == nodes(site, "y") == [first]
    assert there == [second]
    site.delete("trainingjob", "x")
    # The garbage collector looks for new kinds every 30 s, and collects nothing of a CRD's owners before.
    site.cluster.wait_for(lambda: not any(pod.startswith("x-") for pod in site.live_pods()), "x's Pod to be gone", 90)
    (old,) = [pod for pod in site.live_pods() if pod.startswith("z-")]
    site.finish(old, "late")  # it takes its time to end, as one does that writes a checkpoint
    site.submit("big", **spec, **WHOLE_NODE)
    site.wait_for_reason("InsufficientGPUs", "big")
    assert ends(site, "z") == []
    has_waited(site, "big")
    site.wait_for_reason("MovePending", "big")
    site.restart()
    site.cluster.wait_for(lambda: ends(site, "z") == [("Moved", False)], "z to move")
    site.restart()
    site.submit("thief", **spec, gpus=4)
    site.wait_for_reason("InsufficientGPUs", "thief")
    assert (nodes(site, "z"), nodes(site, "big")) == ([first], [second])
    site.wait_for_state("Running", "z")
    site.cluster.kubectl("delete", "pod", old, f"--namespace={site.namespace}", "--force")
    site.wait_for_state("Running", "big")
    assert "awaits" not in site.job("big")["status"]["placement"]
    assert (ends(site, "z"), ends(site, "big"), ends(site, "y")) == ([("Moved", False)], [], [])
    assert site.told().count("Moved") <= 1  # killed between a status and its Event it tells none
