"""Odd words of Kueue and of autoscalers about a job that is there: they cost that job at most, and no other."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from closeknit.cluster.cluster import build
from closeknit.cluster.kueue.flavors import ServedKind
from closeknit.cluster.kueue_objects import WORKLOADS_SERVED
from closeknit.cluster.requested_capacity import PROVISIONING_SERVED
from closeknit.cluster.store.watched_kinds import BY_STREAM, Stream, from_document
from closeknit.lifecycle.capacity.capacity_news import CapacityPolicy, capacity_news
from closeknit.lifecycle.kueue.workload_news import workload_news
from closeknit.placement.gang.cache import Tables
from closeknit.scheduling.decision import decide
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.queue.entries import queue_place
from fuzz.good_objects import good_objects
from fuzz.hostile import hostile

GOOD = good_objects()
NOW = datetime(2026, 11, 21, 12, 1, tzinfo=UTC)
SEEDS = 150
SERVED = [ServedKind(WORKLOADS_SERVED), ServedKind(PROVISIONING_SERVED)]


def decided(others: list[Any]) -> None:
    """A decision, and what would be written of Workloads and requests, with these objects there."""
    cluster = build([*others, *SERVED]).at(NOW)
    decision = decide(cluster, Tables(), Memory(), NOW)
    mistakes = [plan.error for plan in decision.plans if plan.error is not None and plan.job.name == "queued"]
    assert mistakes == []
    workload_news(cluster, NOW)
    capacity_news(cluster, Tables(), CapacityPolicy("c"), NOW, queue_place)


@pytest.mark.parametrize("stream", [Stream.WORKLOADS, Stream.RESOURCE_FLAVORS, Stream.PROVISIONING_REQUESTS])
def test_odd_words_about_a_job_are_met_calmly(stream: Stream) -> None:
    rest = [
        value
        for each, found in GOOD.items()
        for good in found
        if each is not stream and (value := from_document(good)) is not None
    ]
    (good,) = GOOD[stream]
    read: Callable[[bytes], Any] = BY_STREAM[stream].decode
    kept = 0
    for seed in range(SEEDS):
        document = hostile(good, seed, is_whole=True)
        try:
            value = read(document)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue  # quarantined
        if value is not None and (value.name, getattr(value, "job_uid", "")) == _same(good):
            kept += 1
            decided([*rest, value])
    assert kept > SEEDS // 10  # it must reach decisions to show anything


def _same(good: dict[str, Any]) -> tuple[str, str]:
    owners = good["metadata"].get("ownerReferences", [{}])
    return good["metadata"]["name"], owners[0].get("uid", "")


def test_the_good_ones_admit_the_job() -> None:
    everything = [value for found in GOOD.values() for each in found if (value := from_document(each)) is not None]
    cluster = build([*everything, *SERVED]).at(NOW)
    (job,) = [job for job in cluster.jobs.values() if job.metadata.name == "queued"]
    workload = cluster.kueue.workload_of(job)
    assert workload is not None
    assert workload.is_admitted
    assert job.spec.template.spec["nodeSelector"] == {"pool": "h200"}
    assert json.loads(json.dumps(cluster.kueue.as_submitted(job).spec.template.spec)).get("nodeSelector") is None
