"""Restarts in place: the gang has started again in its Pods, and the operator counts it, judges it, and says so.

It has happened already: the kubelets and the sidecars of the gang do it without the operator. One restart is one,
however many Pods show it and in whatever order: it is counted once all Pods tell of the new run, so that the one that
failed first is known.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec

from closeknit.api.names import BARRIER_CONTAINER, SIDECAR_CONTAINER
from closeknit.api.text.printable import printable
from closeknit.cluster.pods.gang_runs import EndOfTrainer, RunReport, let_go_at, run_report
from closeknit.cluster.pods.pod import ContainerState, Pod
from closeknit.cluster.pods.symptoms import NOT_STARTED, Said, Symptom, of_waiting
from closeknit.launch.manifests.sidecar_container import NO_PYTHON, SHELL
from closeknit.lifecycle.attempt.attempt import Attempt
from closeknit.lifecycle.attempt.subject import seconds_until
from closeknit.lifecycle.failures.device_health import ill_devices
from closeknit.lifecycle.failures.pod_failures import Failure, by_others, end_facts, own_end, trainers_exit_code
from closeknit.lifecycle.health import hung_gang
from closeknit.lifecycle.health.attempt_end import again_on, blameless, end, judged_end, over
from closeknit.lifecycle.restart.restart_decision import Fails
from closeknit.lifecycle.status.blame import TABLE, Blame, end_reason
from closeknit.lifecycle.status.conditions import timestamp
from closeknit.lifecycle.status.pauses import over_at
from closeknit.lifecycle.transitions import ends, runs
from closeknit.lifecycle.transitions.ends import NO_FACTS
from closeknit.lifecycle.writes.plan import Plan

# All barriers of a gang end within a second, and a kubelet tells of it within one more.
TOLD_WITHIN = timedelta(seconds=5)
# The operator's own image is small, and most nodes have it; a registry that is away for a moment is not refused by it.
PULLED_WITHIN = timedelta(seconds=60)
_NO_RUN = -1
_OURS = frozenset({SIDECAR_CONTAINER, BARRIER_CONTAINER})
_STARTED = frozenset({"Running", "Succeeded"})  # phases
_UNKNOWN = "its containers were started again in place, and no exit code is known"


def refused(attempt: Attempt, *, is_fit: bool) -> Plan | None:
    """The end of an attempt whose Pods cannot have what restarts in place need: the next one goes without. None where
    nothing is known against it."""
    found = [(pod, words) for pod in attempt.present if pod.restarts_in_place and (words := _refused(attempt, pod))]
    if not found:
        return None
    pod, words = found[0]
    message = f"Pod {pod.name} on node {pod.node} cannot restart in place: {words}; the job starts again without that"
    return end(attempt, end_reason(Symptom.SIDECAR_NOT_RUN), message, again=again_on(attempt, is_fit=is_fit))


def _refused(attempt: Attempt, pod: Pod) -> str:
    for container in pod.containers:
        if container.name in _OURS and of_waiting(container) is Symptom.IMAGE_NOT_THERE:
            scheduled = pod.condition("PodScheduled")
            since = None if scheduled is None else scheduled.last_transition_time
            if over_at(since, PULLED_WITHIN, attempt.subject.now) <= attempt.subject.now:
                return f"the image of its sidecar is not there ({container.reason}: {printable(container.message)})"
        if not container.init and container.reason in NOT_STARTED and SHELL in container.message:
            return f"its image has no {SHELL} for what keeps the trainer's exit code"
    report = run_report(pod)
    if report is not None and report.ended is not None and NO_PYTHON in report.ended.words:
        return "its image has no python for what keeps the trainer's exit code"
    return ""


def restarted(attempt: Attempt) -> Plan | None:
    """What follows from a restart in place that is not counted yet; None without one."""
    subject = attempt.subject
    placement = subject.job.status.placement
    counted = 0 if placement is None or placement.run is None else placement.run
    reports = {pod.name: report for pod in attempt.present if (report := run_report(pod)) is not None}
    run = _latest_run(reports)
    if attempt.is_swapping:
        return _joined_late(attempt, reports, run)
    if run <= counted:
        return None
    until = _all_told_at(attempt, reports, run)
    if until is not None and subject.now < until:
        return subject.plan(wake_after_s=seconds_until(until, subject.now))
    found = sorted(_failures(attempt, reports, run), key=lambda each: each[0])
    failed = by_others(attempt, [failure for _, failure in found], runs_again=until is None)
    if failed and failed[0].row.blame is not Blame.JOB and (made := blameless(attempt, failed)) is not None:
        return made
    hung = next((report.hang for report in reports.values() if report.run == run and report.hang is not None), None)
    if hung is not None:
        failed = []
    symptom = Symptom.EXITED if hung is None else Symptom.HUNG
    said = hung_gang.words(attempt, hung) if hung is not None else own_end(attempt, failed) if failed else _UNKNOWN
    blamed = () if hung is None else hung_gang.blamed(attempt, hung)
    if ill_devices(attempt):  # in new Pods it gets others
        return end(attempt, end_reason(symptom), said, facts=replace(NO_FACTS, blamed=blamed))
    facts = end_facts(attempt, failed) if failed else NO_FACTS if hung is None else hung_gang.facts(hung)
    facts = replace(facts, blamed=blamed)
    code = trainers_exit_code(attempt, failed[0]) if failed else None
    judged, told, facts = judged_end(attempt, TABLE[symptom], said, facts, exit_code=code, runs=run - counted)
    if isinstance(judged, Fails):
        return over(subject, judged.reason, told, charged=True, facts=facts, uncounted=run - counted - 1)
    reason = end_reason(symptom)
    return subject.plan(ends.restarted_in_place(subject.job, subject.now, reason, told, run=run, facts=facts))


def joined(attempt: Attempt) -> int | None:
    """The run that all Pods of the gang have begun together since some have taken the place of others; None before
    that, and where none has."""
    placement = attempt.subject.job.status.placement
    if placement is None or not placement.swapping:
        return None
    if not any(pod.restarts_in_place for pod in attempt.present):  # pretended nodes run no barriers, and tell of none
        return placement.run or 0
    reports = {pod.name: report for pod in attempt.present if (report := run_report(pod)) is not None}
    run = _latest_run(reports)
    before = _NO_RUN if placement.run is None else placement.run  # those that have begun none begin with 0
    if run <= before or _all_told_at(attempt, reports, run) is not None:
        return None
    return run


def _latest_run(reports: Mapping[str, RunReport]) -> int:
    return max((report.run for report in reports.values() if report.run is not None), default=_NO_RUN)


def _joined_late(attempt: Attempt, reports: dict[str, RunReport], run: int) -> Plan | None:
    """That new Pods have begun a run with the others is noted when all of them run; where that takes long, without
    it, so that what follows is counted as a restart of its own."""
    subject = attempt.subject
    if run == _NO_RUN or joined(attempt) != run or attempt.phases <= _STARTED:
        return None
    last = max((let_go_at(pod) for pod in attempt.present if _is_in(pod, reports, run)), default=None)
    until = over_at(last, TOLD_WITHIN, subject.now)
    if subject.now < until:
        return None
    return subject.plan(runs.swapped(subject.job, subject.now, run))


def _all_told_at(attempt: Attempt, reports: dict[str, RunReport], run: int) -> datetime | None:
    """When a run is counted though Pods have not told of it; None where all have."""
    shares = zip(attempt.pods, attempt.shares, strict=True)
    if all(share.succeeded or _is_in(pod, reports, run) for pod, share in shares):
        return None
    told = [let_go_at(pod) for pod in attempt.present if _is_in(pod, reports, run)]
    return over_at(min(told, default=None), TOLD_WITHIN, attempt.subject.now)


def _is_in(pod: Pod | None, reports: dict[str, RunReport], run: int) -> bool:
    report = None if pod is None else reports.get(pod.name)
    return report is not None and report.run == run


def _failures(attempt: Attempt, reports: dict[str, RunReport], run: int) -> list[tuple[float, Failure]]:
    """What the trainers of the last run said that ended with an error of their own, with when that was."""
    found = []
    for pod, share in zip(attempt.pods, attempt.booking.shares, strict=True):
        report = None if pod is None else reports.get(pod.name)
        ended = None if report is None or report.run != run else report.ended
        trainer = attempt.trainer_of(share)
        if pod is None or ended is None or ended.was_told or ended.code == 0 or trainer is None:
            continue
        is_launcher = attempt.has_launcher and share.first_rank == 0 and share.server is None
        said = Said(Symptom.EXITED, ended.words.strip())
        found.append((ended.at, Failure(_as_it_ended(pod, trainer, ended), share, trainer, said, is_launcher)))
    return found


def _as_it_ended(pod: Pod, trainer: str, ended: EndOfTrainer) -> Pod:
    """The Pod as its kubelet would have told of it if its containers had not started again."""
    at = timestamp(datetime.fromtimestamp(ended.at, UTC))
    state = ContainerState(trainer, exit_code=ended.code, reason="Error", message=ended.words, ended=at)
    return msgspec.structs.replace(pod, phase="Failed", containers=(state,))
