"""One decision: the verdicts on all jobs, and their Plans."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from closeknit.cluster.booking.job import InvalidJob
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.follow import follow
from closeknit.lifecycle.own_mistake import OwnMistake, guarded
from closeknit.lifecycle.unreadable import erred, refuse_invalid
from closeknit.lifecycle.writes.answers import NOTHING
from closeknit.lifecycle.writes.dropped_fields import without_unkept
from closeknit.lifecycle.writes.plan import Plan, Telling
from closeknit.placement.gang.cache import Tables
from closeknit.scheduling.memo.follow_inputs import FollowInputs, SceneChanges, unchanged
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.memo.message_rate import ToldWords, WantedWords, allot
from closeknit.scheduling.queue.entries import QueueEntry, Schedule
from closeknit.scheduling.schedule import schedule


@dataclass(frozen=True, slots=True)
class Decision:
    """The results of a decision, and its memory for the next one."""

    schedule: Schedule
    plans: tuple[Plan, ...]
    """Of the jobs with something to write or to wait for, in queue order; then of those with new messages, as many as
    may be."""
    followed: Mapping[QueueEntry, FollowInputs]
    """Those with nothing to write now."""
    told: tuple[ToldWords, ...]
    """New messages of jobs within the last minute, now included."""
    wake_at: datetime | None
    """When to decide again though nothing has changed."""


def decide(cluster: Cluster, tables: Tables, memory: Memory, now: datetime) -> Decision:
    """The next step of all jobs. Those of `memory.busy` are counted and left alone."""
    cluster = cluster.at(now)
    verdicts = schedule(cluster, tables, memory, now)
    before = memory.schedule.cluster if memory.schedule is not None else None
    plans: list[Plan] = []
    known: dict[QueueEntry, FollowInputs] = {}
    moments = [] if verdicts.wake_at is None else [verdicts.wake_at]
    changes = SceneChanges.of(cluster, before)
    are_none = changes.are_none
    # What a gang lacks rests on what joins the nodes, too, and that hardly ever changes.
    stands = before is None or cluster.joins_like(before)
    last_of = (memory.followed if stands else dict[QueueEntry, FollowInputs]()).get
    made: list[tuple[QueueEntry, Plan, datetime]] = []
    wanted: list[WantedWords] = []
    for entry in verdicts.entries:
        last = last_of(entry)
        if last is not None and ((are_none and last.is_quiet) or last.stands(entry, changes, now)):
            known[entry] = last
            if last.wake_at is not None:
                moments.append(last.wake_at)
        elif memory.busy and entry.key in memory.busy:
            continue
        else:
            plan = _plan(entry, cluster, memory, now, is_draft=True)
            since = _since(entry, memory, now)
            if plan.telling in {Telling.NEWS, Telling.AGAIN}:
                wanted.append(WantedWords(entry, plan, since))
            else:
                made.append((entry, plan, since))
    words = allot(wanted, memory.told, now)
    made += ((entry, _plan(entry, cluster, memory, now), _since(entry, memory, now)) for entry in words.entries)
    for entry, plan, since in made:
        wake_at = None if plan.wake_after_s is None else now + timedelta(seconds=plan.wake_after_s)
        if plan.writes or plan.unkept or wake_at is not None:
            plans.append(plan)
        if wake_at is not None:
            moments.append(wake_at)
        if not plan.writes and plan.error is None:
            known[entry] = unchanged(entry, cluster, wake_at, since)
    for entry, wake_at in words.later:
        known[entry] = unchanged(entry, cluster, wake_at, _since(entry, memory, now))
        moments.append(wake_at)
    unread = sorted(key for key in cluster.invalid_jobs if key not in memory.busy)
    invalid = (_refused(cluster.invalid_jobs[key], memory, now) for key in unread)
    plans += [plan for plan in invalid if plan.writes or plan.unkept or plan.error is not None]
    return Decision(verdicts, tuple(plans), known, words.told, min(moments, default=None))


def _since(entry: QueueEntry, memory: Memory, now: datetime) -> datetime:
    """Since when the words for a job that waits are what they are now."""
    before = memory.schedule.by_key.get(entry.key) if memory.schedule is not None else None
    last = memory.followed.get(before) if before is not None else None
    if before is None or last is None or last.since is None or not entry.says_like(before):
        return now
    return last.since


def _plan(entry: QueueEntry, cluster: Cluster, memory: Memory, now: datetime, *, is_draft: bool = False) -> Plan:
    answers, epoch = memory.answers.get(entry.uid, NOTHING), memory.epoch
    plan = guarded(follow, entry.job, entry.verdict, cluster, now, answers=answers, epoch=epoch, is_draft=is_draft)
    made = erred(entry.job, now, plan.error) if isinstance(plan, OwnMistake) else plan
    return without_unkept(made, entry.job.status, answers)


def _refused(job: InvalidJob, memory: Memory, now: datetime) -> Plan:
    answers = memory.answers.get(job.metadata.uid or "", NOTHING)
    plan = guarded(refuse_invalid, job, now, answers)
    made = erred(job, now, plan.error) if isinstance(plan, OwnMistake) else plan
    return without_unkept(made, job.status, answers)
