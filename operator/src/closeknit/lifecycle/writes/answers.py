"""The API server's answers to the writes for one job, as far as the next decision needs them.

Answers are held in the process's memory only and are never the truth: after a restart they are empty; the operator asks
the same again and decides the same. `after` is the one place that learns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from closeknit.api.names import service_name
from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import ConditionType, EndReason, EventReason
from closeknit.api.trainingjob_status import TrainingJobStatus
from closeknit.cluster.pods.symptoms import Symptom, of_denial
from closeknit.lifecycle.status.blame import TABLE
from closeknit.lifecycle.status.conditions import is_true, moment
from closeknit.lifecycle.status.pauses import is_between
from closeknit.lifecycle.writes.child_kinds import CHILD_KINDS
from closeknit.lifecycle.writes.denial_words import RefusedWrite, symptom_of
from closeknit.lifecycle.writes.plan import Addition, Create, Delete, Plan, Resize, Stop
from closeknit.lifecycle.writes.quota_demand import AdmittedPod
from closeknit.lifecycle.writes.quota_shortfall import CPUS, QuotaRoom, shortfalls
from closeknit.lifecycle.writes.refusals import RefusedChange, Refusing, Rejection, refused_change, rejection_of
from closeknit.lifecycle.writes.results import (
    FORBIDDEN,
    PASSING,
    ChildRefused,
    Created,
    Deleted,
    Denial,
    DenialKind,
    Exists,
    Failed,
    Judgement,
    Quotas,
    Result,
    StatusStored,
    is_by_quota,
    is_made_pod,
    judged,
    unfinished,
)

# New numbers in the words of a job that waits are written at most so often: a full cluster with many waiting jobs would
# else write all their statuses whenever a Pod comes or goes. So is a reason that the job was told lately: reasons that
# come and go with other jobs are numbers of a kind. Another reason is written as soon as message_rate.py
# has room for it.
TOLD_AGAIN = timedelta(minutes=1)
# For so long a reason was told lately: the Event that told it is still there (--event-ttl of the API server).
TOLD_LATELY = timedelta(hours=1)

# For so long what admission made of a Pod is taken for what it makes of the next one, where nothing shows that. Nothing
# tells that a LimitRange has changed: a job would wait so long for less than it needs by then, and if this were shorter
# others would end in vain so often for one that its quota never takes. A guess between the two, not measured.
ADMITTED_LATELY = timedelta(hours=12)

_COUNTED = "count/pods"  # of a quota: whatever their phase, while `pods` and the rest count those that are not over

_NOT_DONE = frozenset({Judgement.AGAIN, Judgement.REFUSED})


@dataclass(frozen=True, slots=True)
class Undeleted:
    """Pods whose deletion the API server forbids."""

    names: tuple[str, ...]
    denial: Denial


@dataclass(frozen=True, slots=True)
class Admitted:
    """What admission made of Pods of a job."""

    pods: tuple[AdmittedPod, ...]
    """One of each role."""
    generation: int  # of the job then
    at: datetime

    @property
    def until(self) -> datetime:
        """When that is forgotten."""
        return self.at + ADMITTED_LATELY


@dataclass(frozen=True, slots=True)
class Answers:
    """The memory of one job. Attempts are numbers, 0 for none."""

    rejection: Rejection | None = None
    """The newest one, until a booking is stored after it."""
    rejections: int = 0
    """Rejections in a row; a running gang resets them."""
    refused_change: RefusedChange | None = None
    """The newest one, until the job has changed its GPUs, and runs with them. It is no rejection of the job: that
    runs."""
    failing_since: datetime | None = None
    """Since when each try at its children has failed at the API server."""
    service_of: int = 0
    """The attempt whose Service, and other children beside Pods, are known to exist, and the last attempt's to be
    gone."""
    made: int = 0
    """The attempt whose requested Pods were all made."""
    made_at: datetime | None = None
    """When that was last."""
    swept: int = 0
    """The attempt that a quota refused, and for which the job's older Services are known to be gone."""
    undeleted_services: frozenset[str] = frozenset()
    """Its Services of ended attempts whose deletion failed in passing: they are not seen, and quotas count them. A
    restart forgets this."""
    ipc_lock_refused: bool = False
    """Whether the namespace's policy does not admit IPC_LOCK."""
    cpus_refused: bool = False
    """Whether its quotas or limits refuse the CPUs that trainers get beyond their template. A restart forgets this, and
    finds it again by reading the quotas before any write, or by one refused Pod."""
    sidecar_refused: bool = False
    """Whether its Pods are refused with the gang's sidecar. A restart finds that again by one refused Pod."""
    are_pods_counted: bool = False
    """Whether a quota of its namespace counts finished Pods, too."""
    stop_refused: bool = False
    """Whether the API server refuses to stop a Pod, so that Pods are deleted instead."""
    resize_refused: bool = False
    """Whether the API server does not let closeknit tell a gang its size, so that all Pods are new."""
    undeleted: Undeleted | None = None
    """Its Pods that the API server does not delete."""
    admitted: Admitted | None = None
    """What admission made of its Pods that were read whole last. A restart forgets this."""
    room_made_at: datetime | None = None
    """When others were last told to make room for it; a running gang resets it."""
    written: str = ""
    """The version that the last write of its status made; empty before one."""
    added: frozenset[str] = frozenset()
    """Paths of the fields that it added, where it did nothing else."""
    told_at: datetime | None = None
    """When its status was last written; for a waiting job, when its reason was."""
    noticed_at: datetime | None = None
    """When an Event alone was last sent about it."""
    told: tuple[tuple[str, datetime], ...] = ()
    """The written reasons of its wait since it last held anything, each with its last time."""

    def quota_room(self, job: TrainingJob) -> QuotaRoom | None:
        """What the quotas left to a job when it was refused, as far as that is known; None for one that is told
        something else. They may leave more by the time that it has waited for that."""
        refused, pending = self.rejection, job.status.pending
        if refused is None or refused.generation != job.metadata.generation:
            return None
        is_told = pending is not None and pending.reason == refused.reason
        return refused.quota_room if is_told else None

    def admitted_lately(self, generation: int, now: datetime) -> tuple[AdmittedPod, ...]:
        """What admission made of Pods of this spec, and most likely still does."""
        found = self.admitted
        if found is None or found.generation != generation or not is_between(found.at, now, found.until):
            return ()
        return found.pods

    def admitted_more(self, role: str, generation: int, now: datetime) -> Mapping[str, int]:
        """What it added to the last Pod of a role, under the quotas' names."""
        return next((pod.more for pod in self.admitted_lately(generation, now) if pod.role == role), {})

    def was_told(self, reason: str, now: datetime) -> bool:
        """Whether this reason was written lately."""
        return any(told == reason and is_between(at, now, at + TOLD_LATELY) for told, at in self.told)


NOTHING = Answers()


def after(answers: Answers, plan: Plan, results: Sequence[Result], now: datetime) -> Answers:
    """What these results of the Plan's writes teach. Of several refused children the first counts, as one."""
    if plan.is_by_choice and not any(isinstance(result, StatusStored) for result in results):
        return _unchanged(_admitted(answers, plan, results, now), plan, results, now)
    refused = next((result for result in results if judged(result, plan.uid) is Judgement.REFUSED), None)
    for result in results:
        if isinstance(result, Quotas) or judged(result, plan.uid) is not Judgement.REFUSED:
            answers = _learned(answers, plan, result, now)
    if any(_is_unseen_and_unmade(result, plan.uid) for result in results):
        answers = replace(answers, service_of=0)  # the Service alone is not enough: all is asked for once more
    answers = _admitted(_undeleted(answers, results), plan, results, now)
    answers = _with_services(answers, results)
    if any(_is_refused(result, Stop) for result in results):
        answers = replace(answers, stop_refused=True)
    if any(_is_refused(result, Resize) for result in results):
        answers = replace(answers, resize_refused=True)
    if plan.status is None and plan.notice is not None:
        told = answers.refused_change
        if told is not None and plan.notice.reason is told.reason:
            told = replace(told, is_told=True)
        answers = replace(answers, noticed_at=now, refused_change=told)
    failed = next((each for each in results if isinstance(each, ChildRefused) and each.denial.may_last), None)
    answers = replace(answers, failing_since=_failing_since(answers, failed, results, now))
    if not isinstance(refused, RefusedWrite):
        if failed is not None and _fails_for_long(answers, now):
            return _not_made(answers, plan, failed, results, now)
        return _swept(_made(answers, plan, results, now), plan, results)
    return _without_addition(answers, plan, refused, results) or _not_made(answers, plan, refused, results, now)


def _not_made(answers: Answers, plan: Plan, refused: RefusedWrite, results: Sequence[Result], now: datetime) -> Answers:
    """What it teaches that a child is refused for good: the job has to wait; or it grows, and goes on without that."""
    if not plan.growth:
        return _rejected(answers, plan, refused, results, now)
    found = refused_change(answers.refused_change, plan, EventReason.RESIZE_REFUSED, refused, now)
    return replace(answers, refused_change=replace(found, growth=plan.growth), failing_since=None)


def _without_addition(answers: Answers, plan: Plan, refused: RefusedWrite, results: Sequence[Result]) -> Answers | None:
    """The answers where the next try is to leave something out that we added; None where that is not the cause."""
    if Addition.CPUS in plan.adds and _speaks_of_cpus(refused):
        return replace(answers, cpus_refused=True)
    if _speaks_of_ipc_lock(plan, refused, results):
        return replace(answers, ipc_lock_refused=True)
    # A Pod is asked for with it still where others of its attempt were taken with it: then it is not the cause.
    if _speaks_of_sidecar(plan, refused, results) and not answers.sidecar_refused:
        return replace(answers, sidecar_refused=True, ipc_lock_refused=False)  # that was not it
    return None


def _unchanged(answers: Answers, plan: Plan, results: Sequence[Result], now: datetime) -> Answers:
    """What it teaches that a change by choice was not stored. An answer that may be another one in a moment counts as a
    refusal, too, for the job loses nothing; of a quota that may still count Pods that have ended nothing is learnt."""
    refused = next(
        (
            result
            for result in results
            if isinstance(result, RefusedWrite)
            and judged(result, plan.uid) in ({Judgement.REFUSED} if isinstance(result, Quotas) else _NOT_DONE)
        ),
        None,
    )
    if refused is None:
        return answers
    if (other := _without_addition(answers, plan, refused, results)) is not None:
        return other
    change = None if plan.notice is None else plan.notice.reason
    is_resize = change in {EndReason.GROWN, EndReason.SHRUNK}
    reason = EventReason.RESIZE_REFUSED if is_resize else EventReason.MOVE_REFUSED
    found = refused_change(answers.refused_change, plan, reason, refused, now)
    found = replace(found, is_shrinking=change is EndReason.SHRUNK)
    if isinstance(refused, ChildRefused):  # it was none of what we add
        answers = replace(answers, sidecar_refused=False, ipc_lock_refused=False)
    return replace(answers, refused_change=found)


def _failing_since(
    answers: Answers, failed: ChildRefused | None, results: Sequence[Result], now: datetime
) -> datetime | None:
    if failed is None:
        return None if any(isinstance(each, Created) for each in results) else answers.failing_since
    since = answers.failing_since
    return now if since is None or since > now else since


def _fails_for_long(answers: Answers, now: datetime) -> bool:
    since = answers.failing_since
    return since is not None and now >= since + TABLE[Symptom.NOT_ANSWERED].after


def _learned(answers: Answers, plan: Plan, result: Result, now: datetime) -> Answers:
    match result:
        case StatusStored(version=version) if plan.status is not None:
            has_run = is_true(plan.status.conditions, ConditionType.RUNNING)
            return replace(
                answers,
                written=version,
                added=plan.adds_fields,
                told_at=now,
                told=_told(answers, plan.status, now),
                rejection=answers.rejection if plan.status.placement is None else None,
                refused_change=_still_refused(answers.refused_change, plan, plan.status),
                rejections=0 if has_run else answers.rejections,
                room_made_at=None if has_run else _room_made_at(answers, plan.status, now),
                swept=answers.swept if plan.status.placement is None else 0,
            )
        case Quotas(found=found):
            return replace(answers, are_pods_counted=any(_COUNTED in quota.hard for quota in found))
        case Created(manifest, is_probe=False) | Exists(manifest) if manifest["kind"] == "Service":
            return replace(answers, service_of=plan.attempt)
        case Deleted(action) | Failed(Delete() as action) if action.kind == "Service" and action.name == service_name(
            plan.job.name, answers.service_of
        ):
            return replace(answers, service_of=0)  # the attempt may begin again
        case _:
            return answers


def _still_refused(refused: RefusedChange | None, plan: Plan, status: TrainingJobStatus) -> RefusedChange | None:
    """The refused change with this status; None once the job has changed its GPUs. A growth in place may be taken back
    until its new Pods are there, so that the pauses between two of them go on to grow."""
    if refused is None or (status.placement is not None and status.placement.swapping):
        return refused
    last = next(reversed(status.attempts), None)
    has_grown = last is not None and last.reason == EndReason.GROWN and moment(last.ended) >= refused.at
    return None if plan.is_by_choice or has_grown else refused


def _room_made_at(answers: Answers, status: TrainingJobStatus, now: datetime) -> datetime | None:
    is_awaited = status.placement is not None and status.placement.awaits
    return now if is_awaited else answers.room_made_at


def _told(answers: Answers, status: TrainingJobStatus, now: datetime) -> tuple[tuple[str, datetime], ...]:
    if status.placement is not None:
        return ()
    if status.pending is None:
        return answers.told
    reason = status.pending.reason
    return (*((told, at) for told, at in answers.told if told != reason), (reason, now))


def _is_unseen_and_unmade(result: Result, uid: str) -> bool:
    """Whether it is a child that may still be made, of a kind known only by our writes' answers."""
    match result:
        case ChildRefused(manifest) | Exists(manifest) | Failed(Create(manifest)):
            is_unseen = CHILD_KINDS[manifest["kind"]].stream is None
            return is_unseen and judged(result, uid) is Judgement.AGAIN
        case _:
            return False


def _is_refused(result: Result, change: type[Stop | Resize]) -> bool:
    """Whether the API server does not let such a change of a Pod through: policies answer 403 or 422."""
    if not isinstance(result, Failed) or not isinstance(result.action, change):
        return False
    return result.denial.failure in FORBIDDEN or result.denial.failure is DenialKind.INVALID


def _admitted(answers: Answers, plan: Plan, results: Sequence[Result], now: datetime) -> Answers:
    read = [each.admitted for each in results if isinstance(each, Created) and each.admitted is not None]
    if not read:
        return answers
    found = {each.role: each for each in answers.admitted_lately(plan.generation, now)}
    # The first of a gang may get something of its own.
    found |= {each.role: each for each in sorted(read, key=lambda each: (len(each.index), each.index))}
    return replace(answers, admitted=Admitted(tuple(found.values()), plan.generation, now))


def _undeleted(answers: Answers, results: Sequence[Result]) -> Answers:
    tried = [(each, each.action) for each in results if isinstance(each, Deleted | Failed)]
    pods = [(each, action) for each, action in tried if isinstance(action, Delete) and action.kind == "Pod"]
    stay = {
        action.name: each.denial
        for each, action in pods
        if isinstance(each, Failed) and each.denial.failure in FORBIDDEN
    }
    found = Undeleted(tuple(sorted(stay)), stay[min(stay)]) if stay else None
    return answers if not pods or found == answers.undeleted else replace(answers, undeleted=found)


def _with_services(answers: Answers, results: Sequence[Result]) -> Answers:
    """With the Services whose deletion is still to be asked for."""
    found = set(answers.undeleted_services)
    for result in results:
        match result:
            case Failed(Delete("Service", name), denial) if denial.failure in PASSING:
                found.add(name)
            case Deleted(Delete("Service", name)) | Failed(Delete("Service", name)):
                found.discard(name)
            case Created(manifest, is_probe=False) | Exists(manifest) if manifest["kind"] == "Service":
                found.discard(manifest["metadata"]["name"])
    return answers if found == answers.undeleted_services else replace(answers, undeleted_services=frozenset(found))


def _made(answers: Answers, plan: Plan, results: Sequence[Result], now: datetime) -> Answers:
    # One that was there before, and is missed all the same, is not to be asked for without a pause either.
    is_there = any(isinstance(result, Exists) and result.manifest["kind"] == "Pod" for result in results)
    if (is_there or any(map(is_made_pod, results))) and unfinished(results, plan.uid) is None:
        return replace(answers, made=plan.attempt, made_at=now)
    return answers


def _swept(answers: Answers, plan: Plan, results: Sequence[Result]) -> Answers:
    deleted = {result.action.name for result in results if isinstance(result, Deleted)}
    if deleted >= {service_name(plan.job.name, plan.attempt), service_name(plan.job.name, plan.attempt - 1)}:
        return replace(answers, swept=plan.attempt)
    return answers


def _speaks_of_ipc_lock(plan: Plan, refused: RefusedWrite, results: Sequence[Result]) -> bool:
    """Whether the capability that we added may be the cause of the refusal: then the next try omits it.

    A policy says no more than Forbidden. Where that is said of the same Pod without IPC_LOCK, too, it was something
    else, and the capability is asked for again the next time. Once a Pod was taken with it, it is no matter.
    """
    return (
        Addition.IPC_LOCK in plan.adds
        and isinstance(refused, ChildRefused)
        and refused.manifest["kind"] == "Pod"
        and refused.denial.failure is DenialKind.FORBIDDEN
        and of_denial(refused.denial.message) is Symptom.POD_DENIED
        and not is_by_quota(refused)
        and not any(is_made_pod(result) for result in results)
    )


def _speaks_of_sidecar(plan: Plan, refused: RefusedWrite, results: Sequence[Result]) -> bool:
    """Whether the gang's sidecar may be the cause of the refusal, likewise: its image, its requests, its rules."""
    return (
        Addition.SIDECAR in plan.adds
        and isinstance(refused, ChildRefused)
        and refused.manifest["kind"] == "Pod"
        and refused.denial.failure in {DenialKind.FORBIDDEN, DenialKind.INVALID}
        and symptom_of(refused) in {Symptom.POD_DENIED, Symptom.OBJECT_INVALID}
        and not is_by_quota(refused)
        and not any(is_made_pod(result) for result in results)
    )


def _speaks_of_cpus(refused: RefusedWrite) -> bool:
    """Whether the CPUs that we added may be the cause of the refusal: then the next try omits them. A LimitRange and a
    quota both name the resource, after the name of the Pod."""
    if isinstance(refused, Quotas):
        return any(each.resource in CPUS for each in shortfalls(refused.demand, refused.found))
    if not isinstance(refused, ChildRefused) or refused.manifest["kind"] != "Pod":
        return False
    why = refused.denial.message.replace(refused.manifest["metadata"]["name"], "")
    return refused.denial.failure is DenialKind.FORBIDDEN and "cpu" in why


def _rejected(answers: Answers, plan: Plan, refused: RefusedWrite, results: Sequence[Result], now: datetime) -> Answers:
    tries = answers.rejections + 1
    rejection = rejection_of(plan, refused, answers.rejection, now, tries=tries, results=results)
    answers = replace(answers, rejection=rejection, rejections=tries)
    if rejection.of is Refusing.CHILD:  # all of this attempt is taken back, and it begins again under its number
        answers = replace(answers, made=0, made_at=None)
    if isinstance(refused, ChildRefused):
        answers = replace(answers, sidecar_refused=False)
    if isinstance(refused, ChildRefused) and refused.denial.failure is DenialKind.FORBIDDEN:
        # A quota of CPUs takes no Pod that asks for none: then the CPUs are what there may be room for the next time.
        cpus_refused = answers.cpus_refused and not _speaks_of_cpus(refused)
        return replace(answers, ipc_lock_refused=False, cpus_refused=cpus_refused)
    return answers
