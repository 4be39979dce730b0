"""What is looked up in a Cluster: a job's fault, its priority and children, and what its Pods got."""

import pytest

from closeknit.api.names import JobKey
from closeknit.cluster.booking.job import InvalidJob
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.store.watched_kinds import ObjectChange, Stream, change
from scenarios.manifests import (
    Manifest,
    allocation,
    node_topology,
    pod,
    priority_class,
    resource_claim,
    resource_slice,
    told,
    training_job,
    uuids,
    worker,
)
from scenarios.views import cluster as cluster_of
from scenarios.views import parsed


def test_a_job_that_cannot_be_read_is_kept_with_its_fault() -> None:
    cluster = cluster_of(training_job(spec={"gpus": 70_000}))
    job = cluster.invalid_jobs[JobKey("team-b", "train")]
    assert isinstance(job, InvalidJob)
    assert job.error == "spec.gpus: Input should be less than or equal to 65536"
    assert not cluster.jobs
    healed = cluster.after([change(parsed(training_job()))])
    assert (list(healed.jobs), list(healed.invalid_jobs)) == ([JobKey("team-b", "train")], [])


PRIORITIES = {
    "the class it names": ("high", [priority_class("high", 1000), priority_class("low", 1, is_default=True)], 1000),
    "no class: the global default": (None, [priority_class("low", 1, is_default=True)], 1),
    "no class and no default": (None, [priority_class("high", 1000)], 0),
    "several defaults: the lowest, as at admission": (
        None,
        [priority_class("b", 7, is_default=True), priority_class("a", 9, is_default=True)],
        7,
    ),
    "a class that is not there": ("gone", [], 0),
}


@pytest.mark.parametrize(("named", "classes", "expected"), PRIORITIES.values(), ids=PRIORITIES.keys())
def test_priority(named: str | None, classes: list[Manifest], expected: int) -> None:
    cluster = cluster_of(training_job(spec={"priorityClassName": named}), *classes)
    assert cluster.priority(cluster.jobs[JobKey("team-b", "train")]) == expected


def test_the_children_of_a_job() -> None:
    cluster = cluster_of(
        worker(index=1, node="gpu-1"),
        worker(index=0, node="gpu-1", phase="Failed"),
        worker("other", node="gpu-1"),
        pod("train-a1-worker-00002", namespace="team-b"),
        resource_claim("train-a1-worker-00001", namespace="team-b", job="train"),
        resource_claim("train-a1-worker-00000", namespace="team-b", job="train"),
    )
    job = JobKey("team-b", "train")
    assert [pod.name for pod in cluster.pods_of(job)] == ["train-a1-worker-00000", "train-a1-worker-00001"]
    assert [claim.name for claim in cluster.claims_of(job)] == ["train-a1-worker-00000", "train-a1-worker-00001"]
    assert ("team-b", "train-a1-worker-00002") in cluster.pods
    assert cluster.pods_of(JobKey("team-b", "nobody")) == ()


def test_what_a_pod_really_got() -> None:
    cluster = cluster_of(
        node_topology("gpu-1", allocations=[allocation("ml", "notebook", uuids("gpu-1", 5, 2))]),
        resource_slice("gpu-1"),
        pod(),
        pod("quiet"),
        told(pod("shown"), ("nvidia.com/gpu", uuids("gpu-1", 3))),
        resource_claim("x", ("gpu-1", 7), ("gpu-1", 1), ("gpu-9", 0)),
    )
    assert cluster.devices.reported(cluster.pods["ml", "notebook"]) == ("GPU-gpu-1-2", "GPU-gpu-1-5")
    assert cluster.devices.reported(cluster.pods["ml", "quiet"]) is None
    assert cluster.devices.reported(cluster.pods["ml", "shown"]) == ("GPU-gpu-1-3",)
    assert cluster.devices.claimed(cluster.claims["ml", "x"]) == ("GPU-gpu-1-7", "GPU-gpu-1-1", None)


def test_two_streams_of_pods_out_of_step_lose_nothing() -> None:
    """Somebody's Pod makes room for ours of the same name, and its stream lags behind."""
    key = ("team-b", "train-a1-worker-00000")
    theirs, ours = parsed(pod(key[1], namespace=key[0], uid="old")), parsed(worker(uid="new"))
    cluster = Cluster.empty().after(
        [
            ObjectChange(Stream.OTHER_PODS, key, theirs),
            ObjectChange(Stream.CHILD_PODS, key, ours),
            ObjectChange(Stream.OTHER_PODS, key, theirs),
            ObjectChange(Stream.OTHER_PODS, key, None),
        ]
    )
    assert dict(cluster.pods) == {key: ours}
    assert dict(cluster.after([ObjectChange(Stream.CHILD_PODS, key, None)]).pods) == {}
