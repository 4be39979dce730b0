"""A job that avoids a GPU: room for others and for itself."""

from closeknit.api.names import JobKey
from closeknit.lifecycle.attempt.avoided_nodes import unfit
from closeknit.lifecycle.verdict import Await, Reserve, Wait
from scenarios.manifests import Manifest, uuids, worker
from unit.scheduling.memo.test_most_booked import NOW, Queue, queue, runs, waits


def avoids(site: Queue, name: str, manifest: Manifest) -> None:
    """The job's first attempt has ended by the first GPU of the first node."""
    job = site.cluster.jobs[JobKey("team-b", name)]
    there = unfit({"gpu-00": uuids("gpu-00", 0)}, job, site.cluster, NOW)
    assert there is not None
    ended = {"number": 1, "reason": "NodeUnfit", "ended": "2026-11-21T11:58:00Z", "charged": False}
    ended["unfit"] = [each.model_dump(by_alias=True, exclude_none=True) for each in there]
    site.add({**manifest, "status": {"state": "Queued", "attempt": 2, "attempts": [ended]}})


def test_others_make_room_for_a_job_whose_equal_avoids_a_gpu_there() -> None:
    low = runs("low", 0, priority="low")
    del low["spec"]["expectedDuration"]
    pod = worker("low", 0, node="gpu-00", gpus=uuids("gpu-00", *range(8)), requests={"nvidia.com/gpu": "8"})
    site = queue(1, low, pod, waits("avoiding", 8, "urgent", hour=1), waits("equal", 8, "urgent", hour=2))
    avoids(site, "avoiding", waits("avoiding", 8, "urgent", hour=1))
    verdicts = site.decide()
    assert isinstance(verdicts["avoiding"], Wait)
    assert isinstance(verdicts["equal"], Await)


def test_no_room_is_kept_for_it_on_a_gpu_that_it_avoids() -> None:
    avoiding = waits("avoiding", 8, hour=1)
    site = queue(2, runs("soon", 0, hours=1), runs("later", 1, hours=2), avoiding)
    avoids(site, "avoiding", avoiding)
    found = site.decide()["avoiding"]
    assert isinstance(found, Reserve)
    assert [share.node for share in found.reservation.placement.shares] == ["gpu-01"]
