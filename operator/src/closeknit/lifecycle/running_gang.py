"""Care for a job that holds GPUs: its children are made and watched, and the findings of health/ told."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import inf

from closeknit.api.reasons import ConditionReason, ConditionType, EndReason, EventAction, EventReason
from closeknit.api.text.nccl_version import NcclVersion
from closeknit.api.trainingjob_status import EnvironmentStatus, TrainingJobStatus
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.pods.gang_runs import first_step_at, gave_up, nccl_version
from closeknit.cluster.pods.pod import Pod
from closeknit.cluster.pods.symptoms import without_devices
from closeknit.launch.environment.environment import environment
from closeknit.launch.gang import Gang
from closeknit.lifecycle.attempt import creation
from closeknit.lifecycle.attempt.attempt import Attempt
from closeknit.lifecycle.attempt.blocking_pods import Leftover, leftovers, stays_from, told
from closeknit.lifecycle.attempt.ended_pods import remains, removals
from closeknit.lifecycle.attempt.launched_gang import Lost
from closeknit.lifecycle.attempt.own_pods import own_claim
from closeknit.lifecycle.attempt.shared_claims import shared_claims
from closeknit.lifecycle.attempt.subject import seconds_until
from closeknit.lifecycle.attempt.verification import is_mismatched, verified
from closeknit.lifecycle.booking.book_gang import take_back
from closeknit.lifecycle.booking.booked_placement import environment_status
from closeknit.lifecycle.booking.booking_words import placed
from closeknit.lifecycle.booking.gang_quota import may_be_counted
from closeknit.lifecycle.failures import device_health
from closeknit.lifecycle.failures.dead_nodes import dead_nodes
from closeknit.lifecycle.failures.refused_growth import growth_begun, refused_growth, shares_before
from closeknit.lifecycle.failures.staying_pods import (
    farewells,
    is_ending_as_it_was,
    is_missed,
    told_otherwise,
    told_size,
)
from closeknit.lifecycle.health import (
    hung_gang,
    in_place,
    not_ready,
    not_starting,
    preflight_result,
    unscheduled,
)
from closeknit.lifecycle.health.attempt_end import (
    abandoned,
    blameless,
    child_deleted,
    claim_stays,
    device_died,
    end,
    failed,
    left_behind,
    node_lost,
    replaced,
    succeeded,
)
from closeknit.lifecycle.health.misplaced import misplaced
from closeknit.lifecycle.health.slow_path import counts_from, slow_path
from closeknit.lifecycle.health.unschedulable import unschedulable
from closeknit.lifecycle.status.conditions import found, stated
from closeknit.lifecycle.status.degraded import Degradation, degradation, harmed, together
from closeknit.lifecycle.status.lost_time import Launch, launch, phases_told
from closeknit.lifecycle.status.pauses import is_between, later, restart_at
from closeknit.lifecycle.transitions import runs
from closeknit.lifecycle.transitions.next_status import BEING_STARTED
from closeknit.lifecycle.writes.answers import TOLD_AGAIN
from closeknit.lifecycle.writes.plan import Action, Addition, Notice, Plan
from closeknit.lifecycle.writes.quota_demand import quota_demand
from closeknit.placement.values.placement import Placement

_STARTED = frozenset({"Running", "Succeeded"})  # phases
_TOLD_EARLY = frozenset({ConditionReason.DEVICE_UNHEALTHY, ConditionReason.HANGS})  # and taken back as early
WAITS_UNTOLD = timedelta(seconds=5)  # Pods without much of a grace period are gone before anybody has read why


def tend(attempt: Attempt, *, is_fit: bool, before: Placement | None = None) -> Plan:
    """The next step of a booked job. `is_fit`: another attempt could be given the same GPUs. `before`: the placement to
    which it goes back, of one whose growth is refused."""
    subject = attempt.subject
    refused = refused_growth(subject.job, attempt.booking, attempt.pods[0], subject.answers)
    if refused is not None:
        return take_back(attempt, refused, before)
    if attempt.replaced:
        return replaced(attempt)
    if attempt.is_over:  # those who only serve may fail, or be deleted, once the others are over
        return succeeded(attempt)
    if dead := dead_nodes(attempt):
        return node_lost(attempt, dead)
    if attempt.is_swapping and (words := is_missed(attempt)):
        return _missed(attempt, words, is_fit=is_fit)
    if is_ending_as_it_was(attempt):
        return subject.plan(runs.shared(subject.job, subject.now, attempt.shares))
    is_gone = bool(attempt.missing or attempt.ending)
    has_failed = "Failed" in attempt.phases
    if is_gone and (attempt.has_run or has_failed):  # without it the others fail, which is not their fault
        return child_deleted(attempt, is_fit=is_fit)
    if has_failed:
        failing = [pod for pod in attempt.present if pod.phase == "Failed"]
        return blameless(attempt) or preflight_result.failed(attempt, failing) or failed(attempt, is_fit=is_fit)
    lacks_devices = not attempt.runs and any(without_devices(pod) is not None for pod in attempt.present)
    if lacks_devices and (made := blameless(attempt)) is not None:
        return made
    held_up = None if attempt.has_run else unschedulable(attempt)
    if isinstance(held_up, Plan):
        return held_up
    if (again := in_place.refused(attempt, is_fit=is_fit) or in_place.restarted(attempt)) is not None:
        return again
    left = remains(subject, attempt.booking.attempt - 1)
    gone = removals(subject, subject.children.outlived(attempt.booking))
    old = (*told_size(attempt), *farewells(subject, attempt.booking), *gone.actions, *left.actions)
    plan = _complete(attempt, old) if is_gone or attempt.unclaimed else _watch(attempt, old)
    return plan.woken_at(subject.now, held_up, left.until, gone.until)


def _missed(attempt: Attempt, words: str, *, is_fit: bool) -> Plan:
    """A Pod that was to stay while others are replaced does not. What ended it may be another's fault; that of the job
    it is not, for its ranks have lost others, or waited for them in vain. Those of a gang that grows have lost none."""
    failing = [pod for pod in attempt.present if pod.phase == "Failed"]
    have_failed = any(not gave_up(pod) for pod in failing)
    if have_failed or attempt.ending:
        found = blameless(attempt) or preflight_result.failed(attempt, failing)
        if found is None and have_failed and attempt.is_growing:
            are_deleted = all(pod in attempt.ending for pod in failing)
            found = child_deleted(attempt, is_fit=is_fit) if are_deleted else failed(attempt, is_fit=is_fit)
        if found is not None:
            return found
    return abandoned(attempt.subject, attempt.booking.shares, words)


def _complete(attempt: Attempt, old: tuple[Action, ...]) -> Plan:
    """Makes the missing children of a gang that has not run yet."""
    subject = attempt.subject
    if attempt.shares is not attempt.booking.shares:
        return subject.plan(runs.shared(subject.job, subject.now, attempt.shares), actions=old)
    ready = restart_at(subject.job.status, subject.now)
    if ready is not None:
        return subject.plan(actions=old, wake_after_s=seconds_until(ready, subject.now))
    gang = attempt.gang()
    if isinstance(gang, Lost):
        return end(attempt, EndReason.NODE_CHANGED, gang.message)  # a booked node no longer matches the booking
    there = [at for at, pod in enumerate(attempt.pods) if pod is not None]
    if attempt.is_swapping and (words := told_otherwise(gang, attempt, there)):  # since the booking
        return abandoned(subject, attempt.booking.shares, words)
    claims = shared_claims(subject.job, attempt.booking, subject.cluster)
    if stay := [claim for claim in claims if claim.key not in subject.cluster.pods]:
        return claim_stays(attempt, stay[0])
    missing, unclaimed = attempt.missing, attempt.unclaimed
    wanted = (*missing, *(index for index, _ in unclaimed))
    if in_the_way := leftovers(subject.job, subject.children, subject.cluster, gang, wanted):
        until = stays_from(in_the_way, attempt.begun, subject.now)
        if until is None:
            return _wait_for(attempt, in_the_way, old)
        if subject.now >= until:
            return left_behind(attempt, in_the_way)
        plan = _wait_for(attempt, in_the_way, old)
        pauses_s = [seconds_until(until, subject.now), *filter(None, [plan.wake_after_s])]
        return replace(plan, wake_after_s=min(pauses_s))
    made = (creation.claim_of(gang, index, pod) for index, pod in unclaimed)
    actions: tuple[Action, ...] = (*old, *made)
    ready = attempt.made_again_at
    if missing and ready is None:
        return _make(attempt, gang, actions)
    pause_s = None if ready is None or not missing else seconds_until(ready, subject.now)
    return replace(subject.plan(actions=actions, wake_after_s=pause_s), growth=_growth(attempt))


def _growth(attempt: Attempt) -> str:
    """The growth to which missing Pods and claims belong, while it may be taken back."""
    job = attempt.subject.job
    return growth_begun(job) if shares_before(job, attempt.booking, attempt.pods[0]) else ""


def _make(attempt: Attempt, gang: Gang, actions: Sequence[Action]) -> Plan:
    """The missing Pods, and the other children of the attempt unless they are known to exist."""
    subject = attempt.subject
    with_others = subject.answers.service_of != subject.attempt
    status = None
    if _is_told_to_wait(attempt):
        status = runs.starting(subject.job, subject.now, ConditionReason.STARTING, BEING_STARTED)
    if len(attempt.missing) < len(attempt.pods):
        made = creation.missing(gang, attempt.missing, with_others=with_others)
        adds = frozenset[Addition]() if attempt.is_swapping else creation.additions(gang)  # as its other Pods have them
        plan = subject.plan(status, actions=(*actions, *made.actions), adds=adds)
        return replace(plan, growth=_growth(attempt), is_quota_late=may_be_counted(subject))
    made = creation.whole(gang, with_others=with_others)
    plan = subject.plan(
        status,
        demand=quota_demand(made.manifests, may_be_counted=may_be_counted(subject), gpus=attempt.booking.gpus),
        opening=made.opening,
        actions=(*actions, *made.actions),
        adds=creation.additions(gang),
    )
    ours = environment(gang, 0)
    plan = replace(plan, sets=ours.names, is_quota_late=may_be_counted(subject))
    if subject.answers.ipc_lock_refused and subject.job.status.placement is not None:
        return replace(plan, notice=placed(subject, subject.job.status.placement, harmed(ours)))  # it was unsaid
    return plan


def _wait_for(attempt: Attempt, in_the_way: tuple[Leftover, ...], old: tuple[Action, ...]) -> Plan:
    """Makes nothing while leftovers are in the way. A lasting wait is announced, and again at most once a minute: the
    Pods of a large gang go one by one."""
    subject, words, begun = attempt.subject, told(in_the_way), attempt.begun
    if begun is not None and is_between(begun, subject.now, begun + WAITS_UNTOLD):
        return subject.plan(actions=old, wake_after_s=seconds_until(begun + WAITS_UNTOLD, subject.now))
    told_at = subject.answers.told_at
    if _is_told_to_wait(attempt) and told_at is not None and is_between(told_at, subject.now, told_at + TOLD_AGAIN):
        return subject.plan(actions=old, wake_after_s=seconds_until(told_at + TOLD_AGAIN, subject.now))
    return subject.plan(runs.starting(subject.job, subject.now, ConditionReason.RESTARTING, words), actions=old)


def _is_told_to_wait(attempt: Attempt) -> bool:
    running = found(attempt.subject.job.status.conditions, ConditionType.RUNNING)
    return running is not None and running.reason == ConditionReason.RESTARTING


def _watch(attempt: Attempt, old: tuple[Action, ...]) -> Plan:
    """Watches a gang whose Pods all exist."""
    subject = attempt.subject
    is_over_rdma = all(share.nics for share in attempt.booking.shares if share.server is None)
    if is_over_rdma and subject.answers.ipc_lock_refused and not subject.is_ipc_lock_refusal_told:
        return subject.plan(runs.without_ipc_lock(subject.job, subject.now), actions=old)
    if subject.cluster.claims and any(_is_unseen_yet(subject.cluster, pod) for pod in attempt.present):
        return subject.plan(actions=old)
    run = in_place.joined(attempt)
    is_running = attempt.phases <= _STARTED and (run is not None or not attempt.is_swapping)
    if is_running and (dead := device_died(attempt)) is not None:
        return dead
    if is_running or is_mismatched(subject.cluster, attempt.shares, attempt.pods):
        if (elsewhere := misplaced(attempt)) is not None:
            return elsewhere
        shares, result = verified(subject.cluster, attempt.shares, attempt.pods)
        if is_running:
            seen = _seen(attempt)
            status = runs.running(
                subject.job, subject.now, shares, result, seen.lacks, _launch(attempt), run, seen.environment
            )
            notice = _runs_again(attempt, status)
            if status is not subject.job.status and (seen.is_unready or seen.hangs is not None):
                notice = _told(attempt, seen.hangs)
            return subject.plan(status, actions=old, notice=notice, wake_after_s=seen.pause_s)
        return subject.plan(runs.verified(subject.job, subject.now, shares, result), actions=old)
    if attempt.shares is attempt.booking.shares:
        return _start(attempt, old)
    return subject.plan(runs.shared(subject.job, subject.now, attempt.shares), actions=old)


@dataclass(frozen=True, slots=True)
class _Seen:
    """Findings about a running gang."""

    lacks: Sequence[Degradation | None] = ()
    """What it lacks, for `runs.running`."""
    is_unready: bool = False
    """Whether Pods that do not become ready are among the findings."""
    hangs: Degradation | None = None
    """That it hangs."""
    environment: EnvironmentStatus | None = None
    """Of a gang whose version of NCCL is newly known."""
    pause_s: float | None = None
    """After how many seconds there may be more; None: only after a change."""


def _seen(attempt: Attempt) -> _Seen:
    subject, slower = attempt.subject, slow_path(attempt)
    shown, ill = preflight_result.shown(attempt), device_health.told(attempt)
    ready, more = counts_from(attempt), not_ready.ripens_at(attempt)
    is_early = ready is None or subject.now < ready
    idle = None if is_early else not_ready.not_ready(attempt)
    if is_early:
        more, slower = (None if slower is None and more is None else ready), None
    pause_s = None if more is None else seconds_until(more, subject.now)
    degraded = found(subject.job.status.conditions, ConditionType.DEGRADED)
    was_ill = degraded is not None and degraded.reason in _TOLD_EARLY
    is_told = degraded is not None and degraded.status == "True" and (was_ill or not is_early)
    hangs = hung_gang.told(attempt)
    if hangs is None and (until := device_health.silent_until(attempt, ill)) is not None:
        return _Seen(pause_s=min(seconds_until(until, subject.now), inf if pause_s is None else pause_s))
    lacks = [each for each in (hangs, ill, slower, idle, shown) if each is not None]
    version = _new_nccl_version(attempt)
    if not lacks and not is_told and version is None and not subject.answers.sidecar_refused:
        return _Seen(pause_s=pause_s)
    gang = attempt.gang()
    if isinstance(gang, Lost):  # what it lacked cannot be told again
        return _Seen(pause_s=pause_s)
    told = None
    if version is not None:
        gang = replace(gang, nccl_version=version)
        told = environment_status(environment(gang, 0))
    return _Seen((together(degradation(gang, subject.cluster), lacks),), idle is not None, hangs, told, pause_s)


def _new_nccl_version(attempt: Attempt) -> NcclVersion | None:
    """Version of NCCL that node rank 0's sidecar or preflight tells, and the status does not; None without news. Ranks
    of different versions end with an error of NCCL's own, so that one speaks for all."""
    pod, known = attempt.pods[0], attempt.subject.job.status.environment
    if pod is None:
        return None
    found = nccl_version(pod)
    if found is None and (tested := preflight_result.finding(pod)) is not None:
        found = NcclVersion.parse(tested.nccl)
    is_known = found is None or (known is not None and known.nccl_version == str(found))
    return None if is_known else found


def _launch(attempt: Attempt) -> Launch:
    """When the gang's Pods came, for the moment when all of them run."""
    stepped = _first_step(attempt)
    if attempt.runs:
        return Launch(stepped=stepped)
    new = [pod for pod in attempt.present if not attempt.is_swapping or _is_new(attempt, pod)]
    return replace(launch(new, attempt.subject.now), stepped=stepped)


def _first_step(attempt: Attempt) -> datetime | None:
    """When progress was first seen in this run, by node rank 0's sidecar; None where it does not tell."""
    placement, pod = attempt.subject.job.status.placement, attempt.pods[0]
    run = 0 if placement is None or placement.run is None else placement.run
    return None if pod is None else first_step_at(pod, run)


def _is_new(attempt: Attempt, pod: Pod) -> bool:
    """Whether a Pod was made since the last run has ended."""
    at = later(pod.created, None, attempt.subject.now)
    return at is None or attempt.begun is None or at >= attempt.begun


def _runs_again(attempt: Attempt, status: TrainingJobStatus) -> Notice | None:
    """The Event of a gang that runs again, with the time that each phase took; None of any other. Where Pods stay, the
    Event of the loss is enough: the status has the phases, and each write less is one that a storm of losses spares."""
    if attempt.runs or attempt.is_swapping or status.attempts == attempt.subject.job.status.attempts:
        return None
    words = phases_told(status.attempts[-1])
    return attempt.subject.notice(EventReason.RESTARTED, words, action=EventAction.RESTART)


def _told(attempt: Attempt, hangs: Degradation | None) -> Notice | None:
    """The Event of a gang that hangs, or of Pods that do not become ready."""
    if hangs is not None:
        return attempt.subject.notice(EventReason.HANGS, hangs.message, action=EventAction.START, warning=True)
    words = not_ready.words(attempt)
    return (
        None
        if words is None
        else attempt.subject.notice(EventReason.PODS_NOT_READY, words, action=EventAction.START, warning=True)
    )


def _start(attempt: Attempt, old: tuple[Action, ...]) -> Plan:
    """Not all Pods run yet. That no scheduler looks at them is announced if it lasts, and withdrawn when one does. Pods
    that start again in place are counted first: until then the gang has run, and how long is known."""
    if attempt.runs:
        return attempt.subject.plan(actions=old)
    if (held_up := not_starting.words(attempt)) is not None:
        return _not_starting(attempt, held_up, old)
    subject, told_at = attempt.subject, unscheduled.told_at(attempt)
    if told_at is not None and subject.now < told_at:
        return subject.plan(actions=old, wake_after_s=seconds_until(told_at, subject.now))
    words = BEING_STARTED if told_at is None else stated(unscheduled.words(attempt))
    running = found(subject.job.status.conditions, ConditionType.RUNNING)
    is_starting = running is not None and running.reason == ConditionReason.STARTING
    if running is None or running.message == words or (told_at is None and not is_starting):
        silent_until = not_starting.told_at(attempt)
        pause_s = None if silent_until is None else seconds_until(silent_until, subject.now)
        return subject.plan(actions=old, wake_after_s=pause_s)
    return subject.plan(runs.starting(subject.job, subject.now, ConditionReason.STARTING, words), actions=old)


def _not_starting(attempt: Attempt, words: str, old: tuple[Action, ...]) -> Plan:
    """Announced once: a kubelet rephrases the same fault of an image every few seconds."""
    subject = attempt.subject
    running = found(subject.job.status.conditions, ConditionType.RUNNING)
    if running is not None and running.reason == ConditionReason.NOT_STARTING:
        return subject.plan(actions=old)
    status = runs.starting(subject.job, subject.now, ConditionReason.NOT_STARTING, stated(words))
    notice = subject.notice(EventReason.NOT_STARTING, words, action=EventAction.START, warning=True)
    return subject.plan(status, actions=old, notice=notice)


def _is_unseen_yet(cluster: Cluster, pod: Pod) -> bool:
    """Whether the Pod's GPUs are about to be seen: a claim is allocated before its Pod is bound.

    Waiting for it saves a status that would say less.
    """
    if not (pod.node and pod.is_live):
        return False
    claim = own_claim(cluster, pod)
    return claim is not None and not claim.allocated
