"""An elastic torchrun job on real kubelets shrinks for a job of higher priority, and grows again: its ranks say so."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from closeknit.lifecycle.status.conditions import timestamp
from node.jobs import Jobs

pytestmark = pytest.mark.nodes

ALL, HALF = 4, 2  # its GPUs on both nodes, and on one
NODE = 8  # all GPUs of one: so many are free on none
# Each rank is a shell: what torchrun tells it is what is looked at.
RANK = 'echo "$RANK of $WORLD_SIZE" >> /reports/ranks; sleep 600'
WAIT_S = 120


@pytest.fixture
def site(jobs: Jobs) -> Iterator[Jobs]:
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "before-elastic"}}
    with jobs.stand.claims():
        jobs.begin("elastic-torchrun")
        jobs.cluster.apply({**kind, "value": 1000})
        yield jobs
        jobs.clear()
        jobs.cluster.delete("priorityclass", "before-elastic")


def ranks(site: Jobs) -> list[str]:
    """What all ranks have said, on whatever node."""
    files = [node.reports / "ranks" for node in site.stand.nodes]
    return sorted(line for file in files if file.exists() for line in file.read_text().splitlines())


def wait_for_ranks(site: Jobs, *sizes: int) -> None:
    """Waits until there was a run of each of these sizes, of all its ranks."""
    wanted = sorted(f"{rank} of {size}" for size in sizes for rank in range(size))
    site.cluster.wait_for(lambda: ranks(site) == wanted, f"all ranks of runs of {sizes}", WAIT_S)


def preempted(site: Jobs, pod: str) -> list[str]:
    """For what a Pod that has ended was to end, by the condition that its kubelet has left in its status."""
    conditions = site.cluster.get("pod", pod, site.namespace)["status"]["conditions"]
    return [each["reason"] for each in conditions if each["type"] == "DisruptionTarget"]


def test_its_ranks_say_that_it_shrinks_and_grows(site: Jobs) -> None:
    shares = {"gpusPerNode": HALF}
    site.train(["torchrun", "--no_python", "sh", "-c", RANK], gpus=ALL, elastic={"minGPUs": HALF}, topology=shares)
    wait_for_ranks(site, ALL)
    site.wait_for_state("Running")
    whole = {"gpusPerNode": NODE}
    site.train(["sleep", "600"], name="urgent", gpus=NODE, priorityClassName="before-elastic", topology=whole)
    wait_for_ranks(site, ALL, HALF)
    site.wait_for_state("Running", "urgent")
    site.wait_for_state("Running")
    assert site.job()["status"]["placement"]["gpus"] == HALF
    assert [preempted(site, f"train-a1-worker-{rank:05d}") for rank in range(2)] == [["PreemptionByScheduler"]] * 2
    site.delete("trainingjob", "urgent")
    site.cluster.wait_for(lambda: site.job()["status"]["placement"].get("room"), "room to be told", WAIT_S)
    long_ago = timestamp(datetime.now(UTC) - timedelta(minutes=6))
    room = {"status": {"placement": {"room": {"gpus": ALL, "since": long_ago}}}}
    site.cluster.patch("trainingjob", "train", room, site.namespace, subresource="status")
    wait_for_ranks(site, ALL, HALF, ALL)
    status = site.wait_for_state("Running")
    assert [(end["reason"], end["charged"]) for end in status["attempts"]] == [("Shrunk", False), ("Grown", False)]
    assert "gpus" not in status["placement"]
