"""torchrun on two real nodes, from `kubectl apply` to what every rank says of itself."""

from collections.abc import Iterator

import pytest

from closeknit.cluster.booking import decoded
from node.jobs import Jobs, reports

pytestmark = pytest.mark.nodes

GPUS, PER_NODE = 8, 4
BOUND_WITHIN_S = 2


@pytest.fixture(scope="module", autouse=True)
def claims(jobs: Jobs) -> Iterator[None]:
    with jobs.stand.claims():
        yield


def test_every_rank_is_where_the_plan_says(jobs: Jobs) -> None:
    jobs.begin("torchrun")
    jobs.train(["torchrun", "/scripts/torchrun.py"], gpus=GPUS, topology={"gpusPerNode": PER_NODE})
    jobs.wait_for_end("Succeeded")
    job = jobs.placement()
    assert job.status.placement is not None
    shares = decoded(job.status.placement)
    assert [share.node for share in shares] == ["node-1", "node-2"]
    for index, share in enumerate(shares):
        pod = f"train-a1-worker-{index:05d}"
        told = reports(jobs.log(pod))
        print(pod, share.node, share.gpus, [(each["rank"], each["local_rank"], each["devices"]) for each in told])
        assert [each["rank"] for each in told] == list(share.ranks)
        assert [each["local_rank"] for each in told] == list(range(PER_NODE))
        assert {each["world_size"] for each in told} == {GPUS}
        assert {each["sum"] for each in told} == {sum(range(GPUS))}
        assert {each["host"] for each in told} == {pod}
        assert all(each["devices"] == [f"/dev/nvidia{gpu}" for gpu in sorted(share.gpus)] for each in told)
    verified = jobs.condition("PlacementVerified")
    assert (verified["status"], verified["message"]) == ("True", "every Pod has the planned GPUs")
    assert [share.is_verified for share in shares] == [True, True]


def test_the_operators_share_of_a_start_is_small(jobs: Jobs) -> None:
    """From the API server's answer to `kubectl apply` to the last Pod's binding, less what the scheduler takes."""
    bound = [each for each in jobs.cluster.audit_events() if each.namespace == "torchrun"]
    (applied,) = (each.at for each in bound if each.resource == "trainingjobs" and each.verb == "create")
    last = max(each.at for each in bound if each.resource == "pods" and each.subresource == "binding")
    took_s = (last - applied).total_seconds()
    print(f"applied to last Pod bound: {took_s:.2f} s")
    assert took_s <= BOUND_WITHIN_S
