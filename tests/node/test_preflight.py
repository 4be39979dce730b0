"""The preflight on real kubelets: an init container on the booked GPUs, whose result is its termination message."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from harness.node.image import IMAGE
from harness.node.trainers import DEBIAN
from node.examples import planned, pod
from node.jobs import Jobs

pytestmark = [pytest.mark.nodes, pytest.mark.usefixtures("nothing_is_left")]

PREFLIGHT = "closeknit-preflight"


@pytest.fixture(scope="module", autouse=True)
def claims(jobs: Jobs) -> Iterator[None]:
    with jobs.stand.claims():
        yield


def test_gpus_slower_than_predicted_are_told_and_the_job_runs(jobs: Jobs) -> None:
    """gloo on two CPUs is far from what NVLink would do: so is every pretended GPU."""
    jobs.begin("preflight")
    jobs.train(["true"], gpus=2, preflight="Warn")
    jobs.wait_for_end("Succeeded")
    (said,) = results(jobs, 1)
    assert said["below"] and said["world"] > 0 and said["inside"] > 0
    degraded = jobs.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("False", "Finished")  # as of every job that is over
    words = f"is slower than predicted: all ranks reach {said['world']:.1f} GB/s together"
    assert degraded["message"].startswith("while it ran: preflight: node-") and degraded["message"].endswith(words)


# A clock for which each turn of the measurement takes a tenth of a second on the first node, and a second on the other.
CLOCK = """
import itertools, socket, time
calls, turn = itertools.count(), 0.1 if socket.gethostname().endswith("0") else 1.0
time.perf_counter = lambda: next(calls) * turn
"""


def test_a_slow_node_is_told_by_name_and_with_its_gpus(jobs: Jobs) -> None:
    jobs.begin("slow-node")
    train(jobs, "Warn")
    jobs.wait_for_end("Succeeded")
    first, second = results(jobs, 2)
    assert first["world"] == second["world"]
    assert first["slow"] == second["slow"] == [1]
    assert first["inside"] == pytest.approx(10 * second["inside"])
    assert jobs.condition("Degraded")["message"].startswith(f"while it ran: preflight: {slow(jobs)}")


def test_a_slow_node_is_replaced_where_that_is_enforced(jobs: Jobs) -> None:
    """Here by none, as there is no third."""
    jobs.begin("enforced")
    train(jobs, "Enforce")
    (ended,) = jobs.cluster.wait_for(lambda: jobs.job()["status"].get("attempts"), "the first attempt to end", 90)
    assert (ended["reason"], ended["charged"], [each["name"] for each in ended["unfit"]]) == (
        "PreflightFailed",
        False,
        ["node-2"],
    )
    assert ended["message"].startswith(
        "preflight: node-2 is slower inside than the other nodes of the gang; slowest is"
    )
    message = jobs.wait_for_reason("InsufficientGPUs")["message"]
    assert "node-2 is avoided until" in message
    jobs.wait_for_told("Placed", "PreflightFailed", "InsufficientGPUs")


def train(jobs: Jobs, preflight: str) -> None:
    """A job of two GPUs on each node, where the second node is slow to its own clock."""
    metadata = {"name": "clock", "namespace": jobs.namespace}
    jobs.cluster.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"sitecustomize.py": CLOCK}}
    )
    trainer = {
        "name": "trainer",
        "image": DEBIAN.image,
        "command": ["true"],
        "env": [{"name": "PYTHONPATH", "value": "/clock"}],
        "volumeMounts": [{"name": "clock", "mountPath": "/clock"}],
    }
    volume = {"name": "clock", "configMap": {"name": "clock"}}
    template = {"spec": {"terminationGracePeriodSeconds": 1, "containers": [trainer], "volumes": [volume]}}
    jobs.submit(gpus=4, topology={"gpusPerNode": 2}, preflight=preflight, template=template)


def slow(jobs: Jobs) -> str:
    """What is to be said of the second node."""
    share = planned(jobs, "train")[1]
    first, second = (f"GPU {gpu} of {share.node}" for gpu in share.gpus)
    return f"{share.node} is slower inside than the other nodes of the gang; slowest is what joins {first} and {second}"


def results(jobs: Jobs, nodes: int) -> list[dict[str, Any]]:
    """What the preflight of each node said, which ended well."""
    found = []
    for rank in range(nodes):
        status = jobs.cluster.get("pod", pod("train", rank), jobs.namespace)["status"]
        (ended,) = [each for each in status["initContainerStatuses"] if each["name"] == PREFLIGHT]
        assert ended["state"]["terminated"]["exitCode"] == 0
        found.append(json.loads(ended["state"]["terminated"]["message"]))
    print(*found, sep="\n")
    return found


@pytest.mark.parametrize("preflight", ["Warn", "Enforce"])
def test_an_image_without_a_shell_goes_without(jobs: Jobs, preflight: str) -> None:
    """containerd's own word for what cannot be started."""
    jobs.begin(f"no-shell-{preflight.lower()}")
    jobs.train(["/inmate", "pause"], image=IMAGE, gpus=2, preflight=preflight)
    (ended,) = jobs.wait_for_state("Running")["attempts"]
    assert (ended["reason"], ended["charged"], ended.get("unfit")) == ("PreflightSkipped", False, None)
    assert "/bin/sh" in ended["message"]
    print(ended["message"])
    degraded = jobs.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "PreflightSkipped")
