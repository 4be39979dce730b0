"""A node dies under a torchrun job on real kubelets: the other Pod stays, a new one has the host name of the lost one,
and all ranks meet again.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from harness.node.local_node import LocalNode
from harness.node.stand import Stand
from node.jobs import Jobs
from node.test_restart_in_place import RANKS, SCRIPT, TORCHRUN

pytestmark = pytest.mark.nodes

MET = [f"met-{rank}" for rank in range(RANKS)]


@pytest.fixture(scope="module")
def stand_of_three(jobs: Jobs) -> Iterator[Stand]:
    """One node more than the gang has."""
    with jobs.stand.claims(), jobs.stand.spare() as stand:
        yield stand


def runs(stand: Stand) -> list[int]:
    """How often each rank has met the others, wherever it was."""
    files = [[node.reports / name for node in stand.nodes] for name in MET]
    return [sum(len(file.read_text().split()) for file in each if file.exists()) for each in files]


def node_of(stand: Stand, name: str) -> LocalNode:
    return next(node for node in stand.nodes if node.site.name == name)


# Where rank 0 goes, the others have to find a new one to meet at; the other Pod is the easier case.
@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.long)])
def test_the_other_pod_stays_and_all_ranks_meet_again(jobs: Jobs, stand_of_three: Stand, rank: int) -> None:
    for node in stand_of_three.nodes:
        for file in node.reports.glob("*"):
            file.unlink()
    jobs.begin(f"swap-of-rank-{rank}")
    command = ["sh", "-c", TORCHRUN, SCRIPT]
    jobs.train(command, gpus=RANKS, topology={"gpusPerNode": RANKS // 2}, restart={"limit": 3})
    jobs.cluster.wait_for(lambda: runs(stand_of_three) == [1] * RANKS, "all ranks to meet", 120)
    jobs.wait_for_state("Running")
    pods = [f"train-a1-worker-{index:05d}" for index in range(2)]
    lost, stays = pods[rank], pods[1 - rank]
    booked = [each["name"] for each in jobs.job()["status"]["placement"]["nodes"]]
    uid = jobs.cluster.get("pod", stays, jobs.namespace)["metadata"]["uid"]
    began = datetime.now(UTC)
    node = node_of(stand_of_three, booked[rank])
    node.die()
    try:
        jobs.cluster.wait_for(lambda: f"{lost}-r1" in jobs.names("pods"), "the new Pod", 90)
        jobs.cluster.wait_for(lambda: sorted(runs(stand_of_three)) == [2] * RANKS, "all ranks to meet again", 180)
        status = jobs.wait_for_state("Running")
    finally:
        node.revive()
    assert jobs.cluster.get("pod", stays, jobs.namespace)["metadata"]["uid"] == uid
    (end,) = status["attempts"]
    print(f"the node of rank {rank} died: {end['phases']}")
    assert (status["attempt"], end["reason"], end["inPlace"], end["charged"]) == (1, "NodeLost", True, False)
    assert status["placement"]["replaced"] == {str(rank): 1}
    writes = [f"{each.verb} {each.resource}" for each in jobs.writes(since=began)]
    assert sorted(each for each in writes if each.startswith("create p") or "claims" in each) == [
        "create pods",
        "create resourceclaims",
    ]
    assert len([each for each in writes if each in {"update trainingjobs", "create events"}]) <= 4
    jobs.cluster.wait_for(lambda: lost not in jobs.names("pods"), "the old Pod to be gone", 90)
    assert jobs.job()["status"]["state"] == "Running", "its end means nothing"
    jobs.delete("trainingjob", "train")
    jobs.wait_for_nothing()
