"""What /metrics says of jobs has as many series as the operator's own lists have words, whatever tenants write."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob_status import EndedAttempt, LostTime, Phases
from closeknit.api.wire import Condition
from closeknit.controller.gauges.totals import totals
from closeknit.controller.metrics import Metrics
from closeknit.controller.writes.resources import PODS, TRAINING_JOBS
from closeknit.kube.api import Key
from closeknit.kube.errors import Forbidden
from closeknit.lifecycle.attempt.subject import empty
from closeknit.lifecycle.overview.counts import OTHER
from faults import virtual_time
from faults.fault import Fault, Refuse
from faults.store import Store
from scenarios.manifests import CREATED, training_job
from scenarios.operated import BEGIN, MortalApi, Operator, add, set_status
from scenarios.restarting_gangs import begins
from scenarios.stories import end_trainer, two_plugin_nodes
from scenarios.story import Story, plugin_node
from unit.scheduling.resizing.test_growth_in_place import ADDED, WORKERS, of_train, small

JOBS = 30


def label_values(registry: CollectorRegistry) -> list[str]:
    return [value for family in registry.collect() for sample in family.samples for value in sample.labels.values()]


def series_of(registry: CollectorRegistry) -> int:
    return sum(len(family.samples) for family in registry.collect())


def test_no_label_has_a_word_of_a_tenant_or_of_a_webhook() -> None:
    """Each job says `evil-…` wherever its author, or who may write its status, has a word; a webhook gives a reason of
    its own for each Pod that it refuses."""
    store = Store(history=100_000)
    for manifest in plugin_node("gpu-1"):
        add(store, manifest)
    refusals = [
        Fault(Refuse(Forbidden("no", code=403, reason=f"evil-{number}")), "create", PODS, nth=number)
        for number in range(1, 9)
    ]
    operator = Operator(MortalApi(store, refusals))

    def submit(number: int, **spec: Any) -> None:
        evil = f"evil-{number}"
        labels = {"labels": {evil: evil}}
        template = {"metadata": labels, "spec": {"containers": [{"name": evil, "image": evil}]}}
        words = {"queue": evil, "priorityClassName": evil, "network": {"trafficClass": evil}, "template": template}
        add(store, training_job(evil, namespace=evil, spec={**words, **spec}))

    async def story() -> tuple[int, int]:
        running = asyncio.create_task(operator.run())
        before = 0
        for number in range(JOBS):
            submit(number, gpus=1) if number % 2 else submit(number, gpus=1, network={}, topology={"fabric": {}})
            await asyncio.sleep(5)
            evil = {"reason": f"evil-{number}", "message": "", "lastTransitionTime": CREATED}
            key = Key(f"evil-{number}", f"evil-{number}")
            told = [{"type": kind, "status": "True", **evil} for kind in ("Placed", "Degraded", f"evil-{number}")]
            set_status(store, TRAINING_JOBS, key, conditions=told)
            await asyncio.sleep(5)
            operator.metrics.show(totals(operator.watched.cluster, BEGIN))
            if number == JOBS // 2:
                before = series_of(operator.metrics.registry)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return before, series_of(operator.metrics.registry)

    before, after = virtual_time.run(story())
    assert [value for value in label_values(operator.metrics.registry) if "evil" in value] == []
    assert after <= before + 4, "a series for each job"


def counted(story: Story, metrics: Metrics) -> None:
    """Everything is written that there is to write, and counted."""
    for _ in range(10):
        for plan in (plans := [each for each in story.plans() if each.writes]):
            job = story.cluster.jobs[plan.job]
            story.write(plan)
            metrics.stored(plan, job, story.cluster.pods_of(plan.job))
        if not plans:
            return
    raise AssertionError("still writing")


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def grown(metrics: Metrics) -> tuple[float | None, float | None]:
    restarts = value(metrics, "closeknit_job_restarts_total", reason="Grown", in_place="true")
    return restarts, value(metrics, "closeknit_attempts_ended_total", reason="Grown")


def test_a_growth_in_place_counts_once_it_cannot_be_taken_back() -> None:
    story = small()
    metrics = Metrics(lambda: story.now)
    story.forbidden, story.passing_on_trial = {ADDED: "no Pod of the night"}, True
    for _ in range(3):
        story.pass_time(10 * 60)
        counted(story, metrics)
    assert story.written.count("status Starting") == 3
    assert (grown(metrics), story.status().restarts) == ((0, 0), 0)
    story.forbidden.clear()
    story.pass_time(60 * 60)
    counted(story, metrics)
    story.run_all()
    for pod in of_train(story):
        begins(story, pod, 1)
    assert grown(metrics) == (0, 0)
    counted(story, metrics)
    assert (grown(metrics), story.status().restarts) == ((1, 1), 1)


def test_a_growth_in_place_that_another_end_follows_counts_with_it() -> None:
    story = small()
    metrics = Metrics(lambda: story.now)
    story.pass_time(5 * 60)
    counted(story, metrics)
    assert (grown(metrics), story.status().restarts) == ((0, 0), 1)
    failed = {"name": "trainer", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    story.change_pod(WORKERS[1], phase="Failed", containerStatuses=[failed])
    counted(story, metrics)
    assert [each.reason for each in story.status().attempts] == ["Grown", "PodFailed"]
    assert (grown(metrics), story.status().restarts) == ((1, 1), 2)
    assert value(metrics, "closeknit_attempts_ended_total", reason="PodFailed") == 1
    assert value(metrics, "closeknit_job_restarts_total", reason="PodFailed", in_place="false") == 1


def test_restarts_their_phases_and_what_did_not_train_are_counted_once() -> None:
    story = two_plugin_nodes(restart={"limit": 2})
    metrics = Metrics(lambda: story.now)
    for number in (1, 2):
        counted(story, metrics)
        story.pass_time(10)
        story.run_all()
        counted(story, metrics)
        story.pass_time(600)
        end_trainer(story, 1, ago_s=3)
        counted(story, metrics)
        assert value(metrics, "closeknit_job_restarts_total", reason="PodFailed", in_place="false") == number
    story.pass_time(7)
    story.run_all()
    counted(story, metrics)
    counted(story, metrics)
    found = {
        phase: value(metrics, "closeknit_restart_phase_seconds_sum", phase=phase)
        for phase in ("detect", "decide", "free", "bind", "start")
    }
    assert found == {"detect": 6, "decide": 0, "free": 0, "bind": 17, "start": 0}
    assert value(metrics, "closeknit_restart_phase_seconds_count", phase="detect") == 2
    assert value(metrics, "closeknit_attempts_ended_total", reason="PodFailed") == 2
    first = {
        phase: value(metrics, "closeknit_gang_start_phase_seconds_sum", phase=phase)
        for phase in ("free", "bind", "start")
    }
    assert first == {"free": 0, "bind": 10, "start": 0}
    assert value(metrics, "closeknit_gang_start_phase_seconds_count", phase="start") == 1
    assert value(metrics, "closeknit_lost_gpu_seconds_total", reason="Starting") == 16 * 10
    assert value(metrics, "closeknit_lost_gpu_seconds_total", reason="PodFailed") == 16 * (3 + 10 + 3 + 7)


def test_a_cause_that_is_none_of_ours_is_no_label() -> None:
    metrics, story = Metrics(), two_plugin_nodes()
    story.settle()
    job = story.cluster.jobs[JobKey("team-b", "train")]
    ended = [EndedAttempt(number=1, reason="evil", charged=False, ended=CREATED)]
    status = job.status.model_copy(
        update={"restarts": 1, "attempts": ended, "cost": LostTime(lost_gpu_seconds={"evil": 5})}
    )
    metrics.stored(replace(empty(job), status=status), job)
    assert value(metrics, "closeknit_job_restarts_total", reason=OTHER, in_place="false") == 1
    assert value(metrics, "closeknit_lost_gpu_seconds_total", reason=OTHER) == 5


def test_the_first_step_is_counted_when_it_comes_and_nothing_twice() -> None:
    metrics, story = Metrics(), two_plugin_nodes()
    story.settle()
    job = story.cluster.jobs[JobKey("team-b", "train")]

    def ended(**phases: str) -> dict[str, Any]:
        return {
            "restarts": 1,
            "attempts": [
                EndedAttempt(number=1, reason="PodFailed", charged=True, ended=CREATED, phases=Phases(**phases))
            ],
        }

    def next_status(before: TrainingJob, **phases: str) -> TrainingJob:
        after = before.model_copy(update={"status": before.status.model_copy(update=ended(**phases))})
        metrics.stored(replace(empty(before), status=after.status), before)
        return after

    began = {"detect": "1s", "decide": "2s"}
    ran = {**began, "free": "0s", "bind": "3s", "start": "4s"}
    job = next_status(job, **began)
    assert value(metrics, "closeknit_restart_phase_seconds_count", phase="detect") == 0  # it may never run again
    job = next_status(job, **ran)
    job = next_status(job, **ran, first_step="30s")
    next_status(job, **ran, first_step="30s")
    for phase, length in {"detect": 1, "decide": 2, "free": 0, "bind": 3, "start": 4, "first_step": 30}.items():
        assert value(metrics, "closeknit_restart_phase_seconds_count", phase=phase) == 1
        assert value(metrics, "closeknit_restart_phase_seconds_sum", phase=phase) == length
    assert value(metrics, "closeknit_attempts_ended_total", reason="PodFailed") == 1
    assert value(metrics, "closeknit_job_restarts_total", reason="PodFailed", in_place="false") == 1


def test_a_booking_counts_how_long_the_job_waited() -> None:
    story = two_plugin_nodes()
    metrics = Metrics(lambda: story.now)
    counted(story, metrics)
    assert value(metrics, "closeknit_job_wait_seconds_sum") == 3600  # since its creation, an hour before
    assert value(metrics, "closeknit_job_wait_seconds_count") == 1
    assert value(metrics, "closeknit_placement_attempts_total", result="placed", reason="") == 1


@pytest.mark.parametrize(
    ("kind", "status", "reason", "name", "labels"),
    [
        ("Degraded", "True", "OverSockets", "closeknit_fallbacks_total", {"reason": "OverSockets"}),
        ("Degraded", "True", "evil", "closeknit_fallbacks_total", {"reason": OTHER}),
        ("PlacementVerified", "False", "Mismatch", "closeknit_placement_mismatches_total", {}),
    ],
)
def test_what_a_gang_lacks_is_counted_when_it_is_found_and_not_again(
    kind: str, status: str, reason: str, name: str, labels: dict[str, str]
) -> None:
    metrics, story = Metrics(), two_plugin_nodes()
    story.settle()
    job = story.cluster.jobs[JobKey("team-b", "train")]
    kept = [each for each in job.status.conditions if each.type != kind]
    told = [*kept, Condition(type=kind, status=status, reason=reason, message="", last_transition_time=CREATED)]
    ill = job.status.model_copy(update={"conditions": told})
    well = job.status.model_copy(update={"conditions": kept})
    for before, after in ((well, ill), (ill, ill), (ill, well), (well, ill)):
        stored = job.model_copy(update={"status": before})
        metrics.stored(replace(empty(stored), status=after), stored)
    assert value(metrics, name, **labels) == 2
