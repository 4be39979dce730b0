"""What a decision reads of the Pods of a gang that starts, told in steps and not in time."""

from typing import NoReturn

import pytest

from closeknit.cluster.booking.booking import booking
from closeknit.cluster.cluster import build
from closeknit.cluster.objects.meta import Owner
from closeknit.cluster.store.watched_kinds import from_document
from closeknit.lifecycle.attempt import verification
from closeknit.lifecycle.attempt.own_pods import children, is_own
from closeknit.lifecycle.attempt.verification import is_mismatched
from scenarios.manifests import booked, node, node_topology, training_job, uuids, worker

WHOLE = {"nvidia.com/gpu": "8"}
PODS = [worker(index=0, pin="gpu-1", gpus=uuids("gpu-1", *range(8)), requests=WHOLE, node="gpu-1")]
JOB = training_job(spec={"gpus": 8}, placement=booked(("gpu-1", list(range(8)))))
CLUSTER = build(
    found for each in (node("gpu-1"), node_topology("gpu-1"), JOB, *PODS) if (found := from_document(each)) is not None
)


def _unwanted(*_: object) -> NoReturn:
    raise AssertionError("not of every Pod in every decision")


def test_where_nobody_tells_of_a_pods_gpus_those_of_its_machine_are_not_gathered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (job,) = CLUSTER.jobs.values()
    held = booking(job)
    assert held is not None
    own = children(job, CLUSTER).own
    assert len(own) == 1 == len(held.shares)
    monkeypatch.setattr(verification, "uuids", _unwanted)
    assert not is_mismatched(CLUSTER, held.shares, own)


def test_whose_a_pod_is_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    (job,) = CLUSTER.jobs.values()
    (pod,) = CLUSTER.pods.values()
    assert is_own(pod, job)
    monkeypatch.setattr(Owner, "is_training_job", property(_unwanted))
    assert is_own(pod, job)
