"""The operator's own decision as the queue of a replay: `scheduling.schedule`, on a Cluster that follows it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from closeknit.api.names import POD_COUNT, JobKey
from closeknit.api.objects import ObjectMeta, TrainingJob
from closeknit.api.reasons import ConditionReason, ConditionType, EndReason
from closeknit.api.trainingjob import Defragment
from closeknit.api.trainingjob_status import Pending, TrainingJobStatus
from closeknit.cluster.booking.booking import AwaitedAttempt
from closeknit.cluster.booking.parameter_servers import needs_on_a_node
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.objects.pod_requests import CPU, MEMORY
from closeknit.cluster.pods.pod import Lodger
from closeknit.cluster.store.watched_kinds import ObjectChange, Stream, change
from closeknit.lifecycle.booking.booked_placement import assumed
from closeknit.lifecycle.booking.booking_words import reason_of
from closeknit.lifecycle.reserved_words import estimated_start
from closeknit.lifecycle.status.conditions import Observation, moment, observed, timestamp
from closeknit.lifecycle.status.preference import patient_until
from closeknit.lifecycle.transitions import runs, waits
from closeknit.lifecycle.verdict import (
    Await,
    Book,
    Evict,
    Grow,
    Keep,
    Refusal,
    Relocate,
    Reservation,
    Reserve,
    Shrink,
    Wait,
)
from closeknit.lifecycle.writes.answers import Answers
from closeknit.placement.candidates.resource_fit import fits
from closeknit.placement.gang.cache import Tables
from closeknit.placement.values.placement import Placement
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.preemption.leaving_victim import MOVES_WITHIN
from closeknit.scheduling.queue.entries import QueueEntry, Schedule
from closeknit.scheduling.schedule import schedule
from closeknit.scheduling.victims.victim import gone
from closeknit.simulation.changing import RunLeft, ended_by, may_change, pods_to_come, run_by
from closeknit.simulation.submission import Submission

NAMESPACE = "trace"
# At one moment: each but the last ends or changes a job for another, and traces have far fewer. It ends a replay in
# which two jobs would make room for each other for ever.
MOST_DECISIONS = 1000


@dataclass(slots=True)
class _Turn:
    """What the decisions of one moment come to."""

    began: list[Submission] = field(default_factory=list)
    ended: list[Submission] = field(default_factory=list)
    """By the last of them."""
    moments: list[datetime] = field(default_factory=list)
    """When to decide again, by the last of them."""


class Operated:
    """Jobs wait as TrainingJobs; one that is booked holds its GPUs from that moment until it goes.

    Of the API server's time, the Pods' start and restarts nothing is modelled: a job begins when it is booked. What the
    cluster holds at the beginning stays so to the end, and no agent falls silent. A job that ends for another does so
    at once, and begins again later: a trace says nothing of checkpoints. One that is resized or moved goes on from
    where it was, after the time of a restart, and twice as fast with twice as many GPUs.
    """

    def __init__(self, cluster: Cluster, begins: datetime) -> None:
        """`begins` is the moment of the trace's 0, in UTC."""
        self._began_at = begins
        self._cluster = cluster.at(begins)
        self._tables = Tables()
        self._memory = Memory(is_rationed=False)
        self._changes: list[ObjectChange] = []
        self._by_key: dict[JobKey, Submission] = {}
        self._held: dict[Submission, Placement] = {}
        self._waiting: dict[Submission, Refusal] = {}
        self._estimates: dict[Submission, float] = {}
        self._stopped: list[Submission] = []
        self._left: dict[Submission, RunLeft] = {}
        """Of those that may change and run."""
        self._changed: dict[Submission, EndReason] = {}
        """Those that were resized or moved in the last decision."""
        self._others: set[Submission] = set()
        """Those that end at another moment since the last decision than their time says."""
        self._made_room: dict[str, Answers] = {}
        """Gangs for which others were to move, by uid, until they begin: nobody is asked again at once."""
        self._now_s = 0.0
        self._wake_s: float | None = None

    @property
    def cluster(self) -> Cluster:
        """The cluster with what is booked on it."""
        return self._cluster

    @property
    def tables(self) -> Tables:
        """What placement keeps; one decision at a time uses it."""
        return self._tables

    @property
    def waiting(self) -> dict[Submission, Refusal]:
        """Jobs that wait, and why, by the last decision on them."""
        return self._waiting

    @property
    def reserved(self) -> tuple[Submission, Reservation] | None:
        """The job that room is kept for by the last decision, and what is kept; None without any."""
        found = self._memory.schedule.reservations[-1:] if self._memory.schedule is not None else ()
        return (self._by_key[found[0].job], found[0]) if found else None

    def estimate_s(self, job: Submission) -> float | None:
        """When a job was expected to start as it was told first; None where nothing was ever said."""
        return self._estimates.get(job)

    def placement(self, job: Submission) -> Placement:
        """Where a job runs. Raises KeyError for one that does not."""
        return self._held[job]

    def come(self, job: Submission, now_s: float) -> None:
        """It is submitted as a TrainingJob."""
        made = _training_job(job, self._moment(now_s))
        self._by_key[made.key] = job
        self._changes.append(change(made))

    def go(self, job: Submission, _now_s: float) -> None:
        """It is deleted; also one that has not begun."""
        key = _key(job)
        del self._by_key[key]
        self._held.pop(job, None)
        self._left.pop(job, None)
        self._waiting.pop(job, None)
        pods = self._followed().pods_of(key)  # also those that came since the last decision
        self._changes += [ObjectChange(Stream.CHILD_PODS, pod.key, None) for pod in pods]
        self._changes.append(ObjectChange(Stream.TRAINING_JOBS, (key.namespace, key.name), None))

    def has_room_beside(self, other: Submission, job: Submission) -> bool:
        """Whether the node of one that runs has left what a Pod of another needs there besides GPUs."""
        (share,) = self._held[other].shares
        return fits(self._followed().nodes[share.node].spare, needs_on_a_node(job.spec))

    def lodge(self, job: Submission, other: Submission) -> None:
        """It takes what its Pod needs besides GPUs on the node of another, which runs; nothing is booked."""
        (share,) = self._held[other].shares
        needed = {resource: amount for resource, amount in needs_on_a_node(job.spec) if resource != POD_COUNT}
        cpu, memory = needed.pop(CPU, 0), needed.pop(MEMORY, 0)
        key = _key(job)
        lodger = Lodger(key.namespace, key.name, share.node, cpu, memory, tuple(needed.items()))
        self._changes.append(ObjectChange(Stream.OTHER_PODS, key, lodger))

    def move_out(self, job: Submission) -> None:
        """It gives that back."""
        self._changes.append(ObjectChange(Stream.OTHER_PODS, _key(job), None))

    def _followed(self) -> Cluster:
        """The cluster after what has happened since the last decision."""
        if self._changes:
            self._cluster = self._cluster.after(self._changes)
            self._changes.clear()
        return self._cluster

    def begun(self, now_s: float) -> Sequence[Submission]:
        """One decision over all jobs, and another after each that ends or changes some for others."""
        now, turn = self._moment(now_s), _Turn()
        self._stopped, self._changed, self._others, self._now_s = [], {}, set(), now_s
        for _ in range(MOST_DECISIONS):
            found = self._decided(now)
            made = [entry for entry in found.entries if isinstance(entry.verdict, Await)]
            ended = [job for entry in made for job in self._ended(entry)]
            is_over = not self._changes
            turn.moments = [] if found.reservation_until is None else [found.reservation_until]
            turn.ended = ended
            for entry in found.entries:
                if (job := self._by_key.get(entry.key)) is not None:
                    is_news = self._answer(job, entry, turn, now) or self._resize(job, entry, turn, now)
                    is_over = is_over and not is_news
            self._stopped += [job for job in turn.ended if job not in turn.began]
            turn.began = [job for job in turn.began if job not in turn.ended]
            self._changed = {job: how for job, how in self._changed.items() if job not in turn.ended}
            if is_over:
                break
        self._wake_s = (min(turn.moments) - self._began_at).total_seconds() if turn.moments else None
        return turn.began

    def _answer(self, job: Submission, entry: QueueEntry, turn: "_Turn", now: datetime) -> bool:
        """Follows the verdict on a job that waits. Whether more is to be decided by it at once."""
        match entry.verdict:
            case Book(placement):
                self._held[job] = placement
                self._begin(job, entry.job, placement, now)
                self._waiting.pop(job, None)
                turn.began.append(job)
            case Wait(refusal):
                if refusal.error is not None:
                    raise refusal.error
                self._waiting[job] = refusal
                kept = entry.verdict.reservation if isinstance(entry.verdict, Reserve) else None
                is_told = self._tell(job, entry.job, refusal, kept, now)
                turn.moments += [] if entry.until is None else [entry.until]
                return is_told and (may_change(job.spec) or self._may_any_move())
            case Await(awaits, _, placement) if self._may_go_on(awaits):
                turn.moments.append(now + 2 * MOVES_WITHIN)  # who has not moved by then stays
                if placement is not None:
                    self._await(entry.job, placement, awaits, now)
                return placement is not None
        return False

    def _resize(self, job: Submission, entry: QueueEntry, turn: "_Turn", now: datetime) -> bool:
        """Follows the verdict on a job that may change and runs. Whether more is to be decided by it at once."""
        match entry.verdict:
            case Grow(_, placement):
                self._change(job, entry.job, placement, EndReason.GROWN, now)
            case Shrink(_, placement, _):
                self._change(job, entry.job, placement, EndReason.SHRUNK, now)
            case Relocate(_, placement, _, _):
                self._change(job, entry.job, placement, EndReason.MOVED, now)
            case Evict():
                self._stop(job, entry.job, now)
                turn.ended.append(job)
            case Keep(_, _, room) if job in self._left:
                turn.moments += [] if entry.until is None else [entry.until]
                if room is not None:
                    self._store(entry.job, runs.roomy(entry.job, now, room))
                return room is not None
            case _:
                return False
        return True

    def stopped(self) -> Sequence[Submission]:
        """Those that ended for others in the last decision; they wait from the moment they came."""
        return self._stopped

    def resized(self) -> Sequence[tuple[Submission, float]]:
        """Running jobs, those that have just begun among them, that end after so many seconds instead of after their
        time."""
        some = sorted(self._others & self._left.keys(), key=lambda each: each.number)
        return [(job, self._left[job].ends_in_s(self._now_s)) for job in some]

    @property
    def changes(self) -> Mapping[Submission, EndReason]:
        """Those that were resized or moved in the last decision, and how."""
        return self._changed

    def held_gpus(self, job: Submission) -> int:
        """How many GPUs it has. Raises KeyError for one that does not run."""
        return sum(len(share.gpus) for share in self._held[job].shares)

    def _decided(self, now: datetime) -> Schedule:
        cluster = self._followed()
        busy = frozenset(_key(job) for job in self._held if job not in self._left)
        memory = Memory(answers=self._made_room, busy=busy, schedule=self._memory.schedule, is_rationed=False)
        found = schedule(cluster, self._tables, memory, now)
        self._memory = Memory(schedule=found, is_rationed=False)
        self._cluster = found.booked
        return found

    def _ended(self, entry: QueueEntry) -> Sequence[Submission]:
        """Those of the trace that leave their GPUs to this job, at once; others leave them for good."""
        ended: list[Submission] = []
        for each in self._cluster.awaiting.get(entry.key, ()):
            job, told = self._by_key.get(each.job), self._cluster.jobs.get(each.job)
            if told is None or self._cluster.booking_of(each.job) is None or job in self._left:
                continue  # one that may change has a verdict of its own
            if job is None:
                self._changes += gone(self._cluster, told)
                self._changes.append(ObjectChange(Stream.TRAINING_JOBS, (each.job.namespace, each.job.name), None))
            else:
                del self._held[job]
                ended.append(job)
                self._changes.append(change(told.model_copy(update={"status": TrainingJobStatus()})))
        return ended

    def _may_go_on(self, awaits: Sequence[AwaitedAttempt]) -> bool:
        """Whether one of these may go on elsewhere, or with fewer GPUs, and so decides for itself."""
        return any(self._by_key.get(each.job) in self._left for each in awaits)

    def _may_any_move(self) -> bool:
        return any(job.spec.defragment is Defragment.PLANNED for job in self._left)

    def _await(self, told: TrainingJob, placement: Placement, awaits: Sequence[AwaitedAttempt], now: datetime) -> None:
        """It holds what others leave, and says so: who moves for it does so within a moment."""
        held = assumed(told, placement, awaits).status.placement
        self._store(told, waits.awaiting(told, now, held, reason_of(awaits), ""))
        self._made_room[told.metadata.uid or ""] = Answers(room_made_at=now)

    def _change(
        self, job: Submission, told: TrainingJob, placement: Placement, reason: EndReason, now: datetime
    ) -> None:
        """It goes on with these GPUs."""
        self._held[job] = placement
        self._left[job] = self._left[job].resized(self.held_gpus(job) / job.spec.gpus, self._now_s)
        self._changed[job] = reason
        self._others.add(job)
        self._run(ended_by(told, reason, now), placement, now)

    def _stop(self, job: Submission, told: TrainingJob, now: datetime) -> None:
        """It ends for another, and begins again later."""
        del self._held[job], self._left[job]
        self._changes += [ObjectChange(Stream.CHILD_PODS, pod.key, None) for pod in self._cluster.pods_of(told.key)]
        self._changes.append(change(ended_by(told, EndReason.PREEMPTED, now)))

    def _run(self, job: TrainingJob, placement: Placement, now: datetime) -> None:
        """It has these GPUs and its Pods there, and no others."""
        stored = run_by(job, placement, now)
        self._changes += [ObjectChange(Stream.CHILD_PODS, pod.key, None) for pod in self._cluster.pods_of(job.key)]
        self._changes.append(change(stored))
        self._changes += [change(pod) for pod in pods_to_come(stored, self._followed())]

    def _store(self, job: TrainingJob, status: TrainingJobStatus) -> None:
        self._changes.append(change(job.model_copy(update={"status": status})))

    def _begin(self, submission: Submission, told: TrainingJob, placement: Placement, now: datetime) -> None:
        """Its status says since when it has its GPUs: when it ends by its own word, and what it loses if it ends for
        another."""
        self._made_room.pop(told.metadata.uid or "", None)
        if may_change(submission.spec):
            part = self.held_gpus(submission) / submission.spec.gpus
            self._left[submission] = RunLeft(submission.run_s, part, self._now_s)
            self._others |= {submission} if part < 1 else set()
            self._run(told, placement, now)
            return
        job = assumed(told, placement)
        placed = Observation(ConditionType.PLACED, True, ConditionReason.BOOKED)
        found = observed(job.status.conditions, [placed], generation=1, now=now)
        status = job.status.model_copy(update={"start_time": timestamp(now), "conditions": found})
        self._changes.append(change(job.model_copy(update={"status": status})))

    def _tell(
        self, job: Submission, told: TrainingJob, refusal: Refusal, kept: Reservation | None, now: datetime
    ) -> bool:
        """Its status says why it waits and since when, keeps the end that its wait was given, and says whether room is
        kept for it. Whether that is news: only who is told that it waits starts with fewer GPUs, or has others move."""
        before = told.status.pending
        is_known = before is not None and before.reason == refusal.reason
        is_kept = before is not None and before.reserved_since is not None
        if refusal.reason is None or (is_known and is_kept == (kept is not None)):
            return False
        since = timestamp(now)
        queued = since if before is None else before.queued_since or before.since
        start = None if kept is None else estimated_start(kept)
        if start is not None:
            self._estimates.setdefault(job, (moment(start) - self._began_at).total_seconds())
        pending = Pending(
            reason=refusal.reason,
            message="",
            since=before.since if before is not None and is_known else since,
            queued_since=queued,
            estimated_start=start,
            reserved_since=None if kept is None else since,
        )
        until = patient_until(told, now) if refusal.ends else None
        ends = {} if until is None else {"patient_until": timestamp(until)}
        status = told.status.model_copy(update={"pending": pending, **ends})
        self._store(told, status)
        return True

    def wake_s(self, _now_s: float) -> float | None:
        """When somebody's patience is over, or a running job is expected to end for which another waits."""
        return self._wake_s

    def _moment(self, now_s: float) -> datetime:
        return self._began_at + timedelta(seconds=now_s)


def _key(job: Submission) -> JobKey:
    return JobKey(NAMESPACE, f"job-{job.number:09}")


def _training_job(job: Submission, now: datetime) -> TrainingJob:
    key = _key(job)
    metadata = ObjectMeta(
        name=key.name,
        namespace=key.namespace,
        uid=f"uid-{job.number}",
        creation_timestamp=f"{now:%Y-%m-%dT%H:%M:%SZ}",
    )
    return TrainingJob(metadata=metadata, spec=job.spec)
