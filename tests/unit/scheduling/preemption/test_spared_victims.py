"""A job that others make room for, and that would fit without: it holds on, and nobody ends meanwhile."""

from closeknit.lifecycle.verdict import Await, Evict, Reserve
from scenarios.manifests import Manifest, booked, uuids, worker
from unit.scheduling.memo.test_most_booked import queue, runs, waits


def test_who_fits_once_a_job_has_ended_by_itself_holds_on_to_its_room() -> None:
    """Others that came later would take what it gives back, for room is kept for the first of them."""
    low = runs("low", 0, priority="low")
    del low["spec"]["expectedDuration"]
    pod = worker("low", 0, node="gpu-00", gpus=uuids("gpu-00", *range(8)), requests={"nvidia.com/gpu": "8"})
    site = queue(3, low, pod, waits("first", 24, "urgent", hour=1), waits("second", 16, "urgent", hour=2))
    verdicts = site.decide()
    assert isinstance(verdicts["first"], Await)
    assert isinstance(verdicts["second"], Reserve)
    site.store()
    site.add({**pod, "status": {**pod["status"], "phase": "Succeeded"}})
    assert site.step() == set()
    assert site.step() == {"first"}


def test_two_that_would_fit_by_each_others_room_do_not_wait_for_ever() -> None:
    """Each of the jobs that make room holds twice as much as is needed: what the one leaves is enough for both."""
    low = [runs(f"low-{number}", 2 * number, 2 * number + 1, priority="low") for number in range(2)]
    waiting = [awaits(f"urgent-{number}", f"low-{number}", node=2 * number) for number in range(2)]
    verdicts = queue(4, *low, *waiting).decide()
    assert [isinstance(verdicts[f"low-{number}"], Evict) for number in range(2)] == [False, True]


def awaits(name: str, victim: str, *, node: int) -> Manifest:
    """A job for which another one makes room."""
    held = booked((f"gpu-{node:02d}", range(8)))
    held["awaits"] = [{"namespace": "team-b", "name": victim, "uid": f"uid-of-{victim}", "attempt": 1}]
    pending = {"reason": "PreemptionPending", "message": "waits", "since": "2026-11-21T11:59:00Z"}
    made = waits(name, 8, "urgent", hour=int(name[-1]))
    made["status"] = {"state": "Queued", "attempt": 1, "placement": held, "pending": pending}
    return made
