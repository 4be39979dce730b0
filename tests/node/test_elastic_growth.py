"""An elastic torchrun job on two of three real nodes grows to all of them: its Pods stay, their ranks are told to end
first, and then all say the new size."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from closeknit.lifecycle.status.conditions import timestamp
from harness.node.stand import Stand
from node.jobs import Jobs

pytestmark = pytest.mark.nodes

ALL, FEW, EACH = 6, 4, 2
NODE = 8  # all GPUs of one
RANK = """
trap 'echo "$RANK saves" >> /reports/told; exit 0' TERM
echo "$RANK of $WORLD_SIZE" >> /reports/ranks
sleep 600 & wait
"""
WAIT_S = 150


@pytest.fixture(scope="module")
def stand_of_three(jobs: Jobs) -> Iterator[Stand]:
    """One node more than the gang has at first."""
    with jobs.stand.claims(), jobs.stand.spare() as stand:
        yield stand


def lines(stand: Stand, name: str) -> list[str]:
    """What all ranks have said, on whatever node."""
    files = [node.reports / name for node in stand.nodes]
    return sorted(line for file in files if file.exists() for line in file.read_text().splitlines())


def long_ago() -> str:
    return timestamp(datetime.now(UTC) - timedelta(minutes=6))


def test_ranks_that_stay_say_the_new_size_in_their_pods(jobs: Jobs, stand_of_three: Stand) -> None:
    for node in stand_of_three.nodes:
        for file in node.reports.glob("*"):
            file.unlink()
    jobs.begin("elastic-growth")
    jobs.train(["sleep", "600"], name="other", gpus=NODE, topology={"gpusPerNode": NODE})
    jobs.wait_for_state("Running", "other")
    command, shares = ["torchrun", "--no_python", "sh", "-c", RANK], {"gpusPerNode": EACH}
    jobs.train(command, gpus=ALL, elastic={"minGPUs": FEW}, topology=shares, restart={"limit": 3})
    jobs.wait_for_reason("InsufficientGPUs")
    pending = {"status": {"pending": {"since": long_ago(), "queuedSince": long_ago()}}}
    jobs.cluster.patch("trainingjob", "train", pending, jobs.namespace, subresource="status")
    few = sorted(f"{rank} of {FEW}" for rank in range(FEW))
    jobs.cluster.wait_for(lambda: lines(stand_of_three, "ranks") == few, "all ranks of the small gang", WAIT_S)
    jobs.wait_for_state("Running")
    pods = [f"train-a1-worker-{index:05d}" for index in range(2)]
    uids = [jobs.cluster.get("pod", pod, jobs.namespace)["metadata"]["uid"] for pod in pods]
    jobs.delete("trainingjob", "other")
    jobs.cluster.wait_for(lambda: jobs.job()["status"]["placement"].get("room"), "room to be told", WAIT_S)
    room = {"status": {"placement": {"room": {"gpus": ALL, "since": long_ago()}}}}
    jobs.cluster.patch("trainingjob", "train", room, jobs.namespace, subresource="status")
    whole = sorted([*few, *(f"{rank} of {ALL}" for rank in range(ALL))])
    jobs.cluster.wait_for(lambda: lines(stand_of_three, "ranks") == whole, "all ranks of the whole gang", WAIT_S)
    status = jobs.wait_for_state("Running")
    (end,) = status["attempts"]
    print(f"grown: {end['phases']}")
    assert (status["attempt"], end["reason"], end["inPlace"], end["charged"]) == (1, "Grown", True, False)
    assert [jobs.cluster.get("pod", pod, jobs.namespace)["metadata"]["uid"] for pod in pods] == uids
    assert lines(stand_of_three, "told") == [f"{rank} saves" for rank in range(FEW)], "they could save their work"
    jobs.delete("trainingjob", "train")
    jobs.wait_for_nothing()
