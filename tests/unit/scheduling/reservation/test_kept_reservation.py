"""What is remembered of a reservation, and of those behind it, rests on all that a new decision would look at."""

from typing import Any

import pytest

from closeknit.api.objects import TrainingJob
from closeknit.lifecycle.verdict import Book, Reserve, Wait
from closeknit.placement.gang.cache import Tables
from closeknit.placement.values.placement import Placement
from closeknit.scheduling.decision import decide
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.queue.queue_reservation import QueueReservation
from scenarios.manifests import Manifest, booked, cluster_topology, node, node_topology, training_job
from unit.scheduling.memo.test_most_booked import Queue, queue, runs, waits

AGED: Manifest = {
    "reason": "InsufficientGPUs",
    "message": "full",
    "since": "2026-11-20T16:00:00Z",
    "queuedSince": "2026-11-20T16:00:00Z",
}


def kept_nodes(site: Queue) -> list[str]:
    """Where room is kept: as it is remembered, and as somebody who remembers nothing finds it."""
    verdicts = site.decide()
    afresh = decide(site.cluster, Tables(), Memory(site.answers), site.now).schedule
    assert {key.name: type(verdict) for key, verdict in afresh.items()} == {
        name: type(verdict) for name, verdict in verdicts.items()
    }
    assert site.last is not None
    assert site.last.schedule.reservations == afresh.reservations
    return [share.node for share in afresh.reservations[-1].placement.shares]


def test_who_waits_behind_it_passes_once_a_job_elsewhere_says_that_it_ends_sooner() -> None:
    """The first job then fits into the other rack, too, at the same moment."""
    both = training_job(
        "both",
        spec={"gpus": 16, "expectedDuration": "4h"},
        placement=booked(("gpu-00", range(8)), ("gpu-02", range(8))),
        attempt=1,
        state="Running",
        observedGeneration=1,
    )
    both["status"]["startTime"] = "2026-11-21T11:30:00Z"
    first = waits("first", 16, hour=1, topology={"gpusPerNode": 8, "fabric": {"required": "rack"}})
    behind = waits("behind", 8, hour=2, expectedDuration="50h")
    site = queue(0, cluster_topology("rack"), both, runs("other", 3, hours=40), first, behind)
    for number in range(4):
        labels = {"net.example/rack": f"r{number // 2}"}
        site.add(node(f"gpu-{number:02d}", labels=labels), node_topology(f"gpu-{number:02d}"))
    assert isinstance(site.decide()["first"], Reserve)
    site.store()
    assert kept_nodes(site) == ["gpu-00", "gpu-01"]
    site.add(runs("other", 3, hours=1))
    assert kept_nodes(site) == ["gpu-02", "gpu-03"]
    assert site.last is not None
    assert [key.name for key, each in site.last.schedule.items() if isinstance(each, Book)] == ["behind"]


def test_who_waits_behind_it_is_not_asked_again_once_a_job_elsewhere_says_that_it_ends_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fewer will have ended by then, so that who could not pass cannot pass now; the words are the same, too."""
    first = waits("first", 16, hour=1, topology={"fabric": {"required": "rack"}})
    behind = waits("behind", 8, hour=2, expectedDuration="50h")
    site = queue(0, cluster_topology("rack"), runs("train", 0, hours=2), runs("other", 2, hours=1), first, behind)
    for number, rack in enumerate(("a", "a", "b")):
        labels = {"net.example/rack": rack}
        site.add(node(f"gpu-{number:02d}", labels=labels), node_topology(f"gpu-{number:02d}"))
    site.step()
    asked: list[str] = []
    passing = QueueReservation.passing

    def counted(self: QueueReservation, job: TrainingJob, *rest: Any, **how: Any) -> Placement | None:
        asked.append(job.key.name)
        return passing(self, job, *rest, **how)

    monkeypatch.setattr(QueueReservation, "passing", counted)
    site.decide()
    for hours, again in ((40, []), (1, ["behind"])):
        site.add(runs("other", 2, hours=hours))
        asked.clear()
        verdicts = site.decide()
        assert asked == again
        assert isinstance(verdicts["first"], Reserve)
        assert sorted(key.name for key in verdicts["first"].reservation.over) == ["other", "train"][hours == 40 :]
        assert isinstance(verdicts["behind"], Wait)
        assert verdicts["behind"].refusal.reason == "BehindReservation"
        assert kept_nodes(site) == ["gpu-00", "gpu-01"]


def test_who_has_started_again_on_its_gpus_is_waited_for_last() -> None:
    """Nothing says when these jobs end, and nobody else waits so long."""
    first = waits("first", 8) | {"status": {"state": "Queued", "pending": AGED}}
    site = queue(2, first, *(silent(number) for number in range(2)))
    for _ in range(2):
        site.step()
    assert kept_nodes(site) == ["gpu-00"]
    again = silent(0)
    ended = {"number": 1, "reason": "TrainerFailed", "ended": "2026-11-21T11:59:50Z", "charged": True, "inPlace": True}
    again["status"]["attempts"] = [ended]
    site.add(again)
    assert kept_nodes(site) == ["gpu-01"]


def test_who_has_given_back_what_was_lost_to_it_is_waited_for_no_more() -> None:
    """It held nothing of its nodes any more, so that these are the same as before."""
    first = waits("first", 16) | {"status": {"state": "Queued", "pending": AGED}}
    lost = silent(0)
    lost["spec"]["priorityClassName"] = "low"
    lost["status"]["placement"]["lost"] = "0"
    site = queue(2, first, lost, silent(1))
    site.decide()
    lost["status"] = {"state": "Queued", "attempt": 2}
    site.add(lost)
    assert kept_nodes(site) == ["gpu-00", "gpu-01"]


def test_an_elastic_job_starts_with_fewer_gpus_once_the_reservation_allows_it() -> None:
    """Nothing else has changed: with half of its GPUs it takes an hour, and the room is needed later now."""
    since = "2026-11-21T11:50:00Z"
    told = {"reason": "InsufficientGPUs", "message": "full", "since": since, "queuedSince": since}
    elastic = waits("elastic", 16, hour=2, expectedDuration="30m", elastic={"minGPUs": 8})
    elastic |= {"status": {"state": "Queued", "pending": told}}
    elastic["metadata"]["creationTimestamp"] = "2026-11-21T11:00:00Z"
    site = queue(2, runs("train", 0, hours=1), waits("first", 16, expectedDuration="1h"), elastic)
    for _ in range(2):
        assert not isinstance(site.decide()["elastic"], Book)
    site.add(runs("train", 0, hours=10))
    assert isinstance(site.decide()["elastic"], Book)


def silent(number: int) -> Manifest:
    """It began in this order, and does not say for how long it runs."""
    found = runs(f"silent-{number}", number)
    del found["spec"]["expectedDuration"]
    found["status"]["startTime"] = f"2026-11-21T1{number}:00:00Z"
    return found


def test_a_job_that_no_room_is_found_for_counts_once_among_those_that_are_tried() -> None:
    """It is asked again whether others make room for it, behind a booking that is not stored yet."""
    lasting = runs("lasting", 1, priority="highest")
    del lasting["spec"]["expectedDuration"]
    wide = [waits(f"wide-{number}", 24, "urgent", hour=2) for number in range(2)]
    site = queue(3, runs("low", 0, priority="low"), lasting, waits("new", 8, "urgent"), *wide, waits("first", 16))
    for _ in range(3):
        verdicts = site.decide()
        assert isinstance(verdicts["new"], Book)
        assert isinstance(verdicts["first"], Reserve)
