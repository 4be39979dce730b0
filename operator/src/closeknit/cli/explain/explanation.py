"""What is told of one job: one reason and one next step, and all the rest that is known."""

from closeknit.api.reasons import LENT, ConditionType
from closeknit.api.text.quantity import duration_s
from closeknit.cli.answers.job_answers import Explanation, NextStep, PodLine, Run, Where
from closeknit.cli.jobs.found_jobs import FoundJob
from closeknit.cli.jobs.since import since, waits_since
from closeknit.cli.jobs.told_job import ToldAttempt, ToldExit, ToldJob, ToldPhases
from closeknit.cli.jobs.told_pod import ToldPod
from closeknit.lifecycle.status.next_steps import next_step


def explanation(found: FoundJob) -> Explanation:
    """The answer."""
    job, status = found.job, found.job.status
    reason = "Unreadable" if job.unreadable and not job.reason else job.reason
    cost = status.cost
    return Explanation(
        namespace=job.key.namespace,
        name=job.key.name,
        state=job.state,
        reason=reason,
        message=status.message or job.unreadable,
        next_step=_next_step(job, reason),
        since=since(job),
        waits_since=waits_since(job),
        estimated_start=status.pending.estimated_start if status.pending is not None else None,
        gpus=job.spec.gpus,
        queue=job.spec.queue,
        priority_class_name=job.spec.priority_class_name,
        attempt=status.attempt or 1,
        restarts=status.restarts or 0,
        where=_where(job),
        nearest=status.pending.nearest if status.pending is not None else (),
        warnings=status.environment.warnings if status.environment is not None else (),
        nccl_version=status.environment.nccl_version if status.environment is not None else None,
        runs=tuple(map(_run, status.attempts)),
        trained_seconds=cost.trained_seconds if cost is not None else None,
        lost_gpu_seconds=dict(cost.lost_gpu_seconds) if cost is not None else {},
        ettr=cost.ettr if cost is not None else None,
        pods=None if found.pods is None else tuple(map(pod_line, found.pods)),
    )


def pod_line(pod: ToldPod) -> PodLine:
    """One Pod of the answer."""
    return PodLine(name=pod.name, node=pod.node, status=pod.status, message=pod.message, restarts=pod.restarts)


def _next_step(job: ToldJob, reason: str | None) -> NextStep | None:
    pending = job.status.pending
    nearest = pending.nearest if pending is not None else None
    found = next_step(job.key, job.state, reason, nearest, is_readable=job.unreadable is None)
    return None if found is None else NextStep(code=found.code, text=found.text)


def _where(job: ToldJob) -> Where | None:
    placed = job.status.placement
    if placed is None or not placed.node_count:
        return None
    return Where(
        nodes=placed.node_count,
        gpus_held=placed.gpus,
        levels=dict(placed.levels or {}),
        predicted_bus_bandwidth_gb_s=placed.predicted_bus_bandwidth_gb_s,
        ideal_bus_bandwidth_gb_s=placed.ideal_bus_bandwidth_gb_s,
        limited_by=placed.limited_by,
        ended_at_budget=bool(placed.ended_at_budget),
        lent=_lent(job),
    )


def _lent(job: ToldJob) -> str | None:
    placed = job.status.condition(ConditionType.PLACED)
    return placed.message.partition(LENT)[2] or None if placed is not None else None


def _run(ended: ToldAttempt) -> Run:
    return Run(
        attempt=ended.number,
        reason=ended.reason,
        message=ended.message,
        ended=ended.ended,
        charged=ended.charged,
        in_place=bool(ended.in_place),
        ran_seconds=_seconds(ended.ran),
        phases_seconds=_phases(ended.phases),
        blamed=tuple(f"{each.node}/{each.gpu}" if each.gpu else each.node for each in ended.blamed or ()),
        exits=tuple(map(_last_words, ended.exits or ())),
    )


def _last_words(ended: ToldExit) -> str:
    code = f"exit code {ended.exit_code}" if ended.exit_code is not None else None
    return ": ".join(part for part in (ended.pod, code, ended.reason, ended.message) if part)


def _phases(phases: ToldPhases | None) -> dict[str, int]:
    if phases is None:
        return {}
    told = {
        "detect": phases.detect,
        "decide": phases.decide,
        "free": phases.free,
        "bind": phases.bind,
        "start": phases.start,
        "firstStep": phases.first_step,
    }
    return {name: seconds for name, length in told.items() if (seconds := _seconds(length)) is not None}


def _seconds(length: str | None) -> int | None:
    return None if length is None else duration_s(length)
