"""Jobs that are asked behind one reservation in the same decision, and what its moment spares others."""

from typing import Any

import pytest

from closeknit.lifecycle.verdict import Await, Book, Reserve
from scenarios.manifests import Manifest, uuids, worker
from scenarios.story import plugin_node
from unit.scheduling.memo.test_most_booked import queue, runs, waits


def came(day: int, name: str, gpus: int, declared: str, **spec: Any) -> Manifest:
    """A job that waits since this day of the month."""
    made = waits(name, gpus, expectedDuration=declared, **spec)
    made["metadata"]["creationTimestamp"] = f"2026-11-{day:02d}T00:00:00Z"
    return made


def test_who_ends_before_passes_though_one_before_it_that_asks_the_same_does_not() -> None:
    long, short = came(10, "long", 8, "50h"), came(21, "short", 8, "30m")
    verdicts = queue(2, runs("train", 0), came(1, "first", 16, "2h"), long, short).decide()
    assert isinstance(verdicts["first"], Reserve)
    assert [name for name, verdict in verdicts.items() if isinstance(verdict, Book)] == ["short"]


def test_who_ends_before_leaves_its_gpus_to_the_first_job_and_others_to_those_that_pass() -> None:
    """One half node is left for the first job when it starts: the one that the short job has now."""
    waiting = [came(1, "first", 12, "2h"), came(20, "short", 4, "30m"), came(21, "long", 4, "50h")]
    site = queue(1, runs("train", 0), *plugin_node("half-1", gpus=4), *plugin_node("half-2", gpus=4), *waiting)
    verdicts = site.decide()
    assert isinstance(verdicts["first"], Reserve)
    assert [name for name, verdict in verdicts.items() if isinstance(verdict, Book)] == ["short", "long"]


def ends_soon(name: str, **spec: Any) -> Manifest:
    """It is expected to end in three or four minutes, on gpu-00."""
    made = runs(name, 0)
    made["spec"] |= {"expectedDuration": "10m", **spec}
    made["status"]["startTime"] = "2026-11-21T11:51:00Z"
    return made


@pytest.mark.parametrize(("ends", "starts"), [(ends_soon("train"), False), (runs("train", 0), True)])
def test_an_elastic_job_waits_for_all_of_its_gpus_where_they_come_soon(ends: Manifest, *, starts: bool) -> None:
    since = "2026-11-21T11:50:00Z"
    told = {"reason": "InsufficientGPUs", "message": "full", "since": since, "queuedSince": since}
    elastic = waits("elastic", 16, elastic={"minGPUs": 8}) | {"status": {"state": "Queued", "pending": told}}
    assert isinstance(queue(2, ends, elastic).decide()["elastic"], Book if starts else Reserve)


@pytest.mark.parametrize(("grace_s", "goes"), [(600, False), (30, True)])
def test_nobody_goes_whose_end_comes_before_its_grace_period_is_over(grace_s: int, *, goes: bool) -> None:
    low = ends_soon("low", priorityClassName="low")
    pod = worker("low", 0, node="gpu-00", gpus=uuids("gpu-00", *range(8)), requests={"nvidia.com/gpu": "8"})
    pod["spec"]["terminationGracePeriodSeconds"] = grace_s
    verdicts = queue(1, low, pod, waits("urgent", 8, "urgent")).decide()
    assert isinstance(verdicts["urgent"], Await if goes else Reserve)
