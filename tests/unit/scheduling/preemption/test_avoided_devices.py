"""A job that avoids a GPU says nothing of the room that others make for its equals."""

from closeknit.api.names import JobKey
from closeknit.lifecycle.attempt.avoided_nodes import unfit
from closeknit.lifecycle.verdict import Await, Wait
from scenarios.manifests import uuids, worker
from unit.scheduling.memo.test_most_booked import NOW, queue, runs, waits


def test_others_make_room_for_a_job_whose_equal_avoids_a_gpu_there() -> None:
    low = runs("low", 0, priority="low")
    del low["spec"]["expectedDuration"]
    pod = worker("low", 0, node="gpu-00", gpus=uuids("gpu-00", *range(8)), requests={"nvidia.com/gpu": "8"})
    avoiding = waits("avoiding", 8, "urgent", hour=1)
    site = queue(1, low, pod, avoiding, waits("equal", 8, "urgent", hour=2))
    job = site.cluster.jobs[JobKey("team-b", "avoiding")]
    there = unfit({"gpu-00": uuids("gpu-00", 0)}, job, site.cluster, NOW)
    assert there is not None
    ended = {"number": 1, "reason": "NodeUnfit", "ended": "2026-11-21T11:58:00Z", "charged": False}
    ended["unfit"] = [each.model_dump(by_alias=True, exclude_none=True) for each in there]
    avoiding["status"] = {"state": "Queued", "attempt": 2, "attempts": [ended]}
    site.add(avoiding)
    verdicts = site.decide()
    assert isinstance(verdicts["avoiding"], Wait)
    assert isinstance(verdicts["equal"], Await)
