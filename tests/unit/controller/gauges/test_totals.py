"""What is counted over all jobs and nodes."""

from typing import Any

import pytest

from closeknit.api.reasons import ExclusionReason
from closeknit.api.trainingjob_status import State
from closeknit.controller.gauges.totals import GPU_STATES, totals
from closeknit.controller.metrics import Metrics
from scenarios.manifests import cut, node, node_topology, pod, training_job, uuids
from scenarios.story import NOW, Story, dra_node, plugin_node

TOO_LARGE = {"gpus": 64}


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def told(story: Story) -> Metrics:
    metrics = Metrics(lambda: story.now)
    metrics.show(totals(story.cluster, story.now))
    return metrics


def test_waiting_jobs_are_counted_by_reason_and_the_oldest_is_timed() -> None:
    story = Story(*plugin_node("gpu-1"), training_job("small"), training_job("large", spec=TOO_LARGE))
    metrics = told(story)
    assert value(metrics, "closeknit_waiting_jobs", reason="Undecided") == 2
    assert value(metrics, "closeknit_oldest_wait_seconds") == 3600  # since their creation, an hour before
    story.settle()
    story.pass_time(60)
    metrics = told(story)
    assert value(metrics, "closeknit_waiting_jobs", reason="InsufficientGPUs") == 1
    assert value(metrics, "closeknit_waiting_jobs", reason="Undecided") == 0
    assert value(metrics, "closeknit_waiting_gpus") == 64
    assert value(metrics, "closeknit_oldest_wait_seconds") == 60
    story.pass_time(30)  # nothing changes, so that nothing is shown again
    assert value(metrics, "closeknit_oldest_wait_seconds") == 90


@pytest.mark.parametrize(
    ("since", "reason"),
    [
        ("2026-11-21T09:00:00Z", "Other"),
        ("9999-12-31T23:59:59Z", "Undecided"),  # such a status cannot be read
        ("no date", "Undecided"),
        ("2026-11-21T09:00:00", "Undecided"),
    ],
)
def test_what_somebody_wrote_into_a_status_stops_nothing(since: str, reason: str) -> None:
    pending = {"reason": "evil", "message": "", "since": since}
    story = Story(*plugin_node("gpu-1"), training_job(spec=TOO_LARGE, pending=pending, state="Queued"))
    metrics = told(story)
    assert value(metrics, "closeknit_waiting_jobs", reason=reason) == 1
    assert (value(metrics, "closeknit_oldest_wait_seconds") or 0) <= 3600


def test_a_job_that_cannot_be_read_counts() -> None:
    story = Story(*plugin_node("gpu-1"), training_job(spec={"gpus": "many"}))
    story.settle()
    found = totals(story.cluster, story.now)
    assert (found.jobs[State.QUEUED], sum(found.waiting.values())) == (1, 1)


def test_nodes_without_gpus_are_no_excluded_nodes() -> None:
    story = Story(
        *plugin_node("gpu-1"),
        node("cpu-1", gpus=None),
        node("no-agent"),
        node("gpu-2", ready="False"),
        plugin_node("gpu-2")[1],
    )
    found = totals(story.cluster, NOW)
    assert (found.nodes, found.excluded) == (3, {ExclusionReason.NO_TOPOLOGY: 1, ExclusionReason.NOT_READY: 1})
    assert (found.gpus["free"], found.gpus["excluded"]) == (8, 8)


def test_every_reason_has_a_series_so_that_an_alert_sees_it_come() -> None:
    metrics = told(Story(*dra_node("gpu-1")))
    zero: dict[str, dict[str, Any]] = {
        "closeknit_waiting_jobs": {"reason": "NoNVLinkIsland"},
        "closeknit_excluded_nodes": {"reason": "AgentStale"},
        "closeknit_verified_jobs": {"result": "Mismatch"},
        "closeknit_gpus": {"state": "unusable"},
    }
    assert {name: value(metrics, name, **labels) for name, labels in zero.items()} == dict.fromkeys(zero, 0)


def test_others_pods_hold_gpus() -> None:
    story = Story(*plugin_node("gpu-1"), pod(requests={"nvidia.com/gpu": "8"}))
    assert totals(story.cluster, NOW).gpus == {"free": 0, "held": 8, "mig": 0, "unusable": 0}


def test_a_gpu_in_mig_mode_is_not_told_as_broken() -> None:
    """It gives its devices to jobs. One that is broken as well is told as that."""
    story = Story(node("gpu-1", gpus=1), cut(node_topology("gpu-1", count=2), 0, count=3))
    metrics = told(story)
    by_state = {state: value(metrics, "closeknit_gpus", state=state) for state in GPU_STATES}
    assert by_state == {"free": 1, "held": 0, "mig": 1, "unusable": 0, "excluded": 0}
    story.objects["NodeTopology", "", "gpu-1"]["status"]["gpus"] = [
        {"index": 0, "state": "Unhealthy", "reasons": ["XID79"]}
    ]
    assert totals(story.cluster, NOW).gpus["mig"] == 0


def test_a_gpu_that_ended_two_runs_is_counted() -> None:
    story = Story(*dra_node("gpu-1"), *dra_node("gpu-2"))
    assert value(told(story), "closeknit_lemons", kind="gpu") == 0
    ends = [
        {"job": "team-b/old", "reason": "GPULost", "ended": f"2026-11-{day}T09:00:00Z", "gpu": uuids("gpu-1", 3)[0]}
        for day in (19, 20)
    ]
    story.objects["NodeTopology", "", "gpu-1"]["status"]["runEnds"] = ends
    assert value(told(story), "closeknit_lemons", kind="gpu") == 1
    assert value(told(story), "closeknit_lemons", kind="node") == 0
