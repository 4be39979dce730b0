"""The operator's own decision as the queue of a replay: `scheduling.schedule`, on a Cluster that follows it."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from closeknit.api.names import POD_COUNT, ConditionReason, ConditionType, JobKey
from closeknit.api.objects import ObjectMeta, TrainingJob
from closeknit.api.trainingjob_status import Pending, TrainingJobStatus
from closeknit.cluster.booking.parameter_servers import needs_on_a_node
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.objects.pod_requests import CPU, MEMORY
from closeknit.cluster.pods.pod import Lodger
from closeknit.cluster.store.kinds import ObjectChange, Stream, change
from closeknit.lifecycle.reserved_words import estimated_start
from closeknit.lifecycle.status.conditions import Observation, moment, observed, timestamp
from closeknit.lifecycle.status.preference import patient_until
from closeknit.lifecycle.verdict import Await, Book, Refusal, Reservation, Reserve, Wait
from closeknit.placement.candidates.resource_fit import fits
from closeknit.placement.gang.cache import Tables
from closeknit.placement.values.placement import Placement
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.queue.entries import QueueEntry, Schedule
from closeknit.scheduling.schedule import schedule
from closeknit.scheduling.victims.victim import gone
from closeknit.simulation.submission import Submission

NAMESPACE = "trace"


class Operated:
    """Jobs wait as TrainingJobs; one that is booked holds its GPUs from that moment until it goes.

    Of the API server's time, the Pods' start and restarts nothing is modelled: a job begins when it is booked. What the
    cluster holds at the beginning stays so to the end, and no agent falls silent. A job that ends for another does so
    at once, and begins again later: a trace says nothing of checkpoints.
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
        self._waiting.pop(job, None)
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
        """One decision over all jobs, and another after each that ends some for others."""
        now, began = self._moment(now_s), list[Submission]()
        self._stopped = []
        while True:
            found = self._decided(now)
            made = [entry for entry in found.entries if isinstance(entry.verdict, Await)]
            ended = [job for entry in made for job in self._ended(entry)]
            is_over = not self._changes
            moments = [] if found.reservation_until is None else [found.reservation_until]
            for entry in found.entries:
                job = self._by_key.get(entry.key)
                match entry.verdict:
                    case Book(placement) if job is not None:
                        self._held[job] = placement
                        self._begin(found.booked.jobs[entry.key], now)
                        self._waiting.pop(job, None)
                        began.append(job)
                    case Wait(refusal) if job is not None:
                        if refusal.error is not None:
                            raise refusal.error
                        self._waiting[job] = refusal
                        kept = entry.verdict.reservation if isinstance(entry.verdict, Reserve) else None
                        self._tell(job, entry.job, refusal, kept, now)
                        if entry.until is not None:
                            moments.append(entry.until)
            self._stopped += [job for job in ended if job not in began]
            began = [job for job in began if job not in ended]
            if is_over:
                break
        self._wake_s = (min(moments) - self._began_at).total_seconds() if moments else None
        return began

    def stopped(self) -> Sequence[Submission]:
        """Those that ended for others in the last decision; they wait from the moment they came."""
        return self._stopped

    def _decided(self, now: datetime) -> Schedule:
        cluster = self._followed()
        memory = Memory(busy=frozenset(map(_key, self._held)), schedule=self._memory.schedule, is_rationed=False)
        found = schedule(cluster, self._tables, memory, now)
        self._memory = Memory(schedule=found, is_rationed=False)
        self._cluster = found.booked
        return found

    def _ended(self, entry: QueueEntry) -> Sequence[Submission]:
        """Those of the trace that leave their GPUs to this job, at once; others leave them for good."""
        ended: list[Submission] = []
        for each in self._cluster.awaiting.get(entry.key, ()):
            job, told = self._by_key.get(each.job), self._cluster.jobs.get(each.job)
            if told is None or self._cluster.booking_of(each.job) is None:
                continue
            if job is None:
                self._changes += gone(self._cluster, told)
                self._changes.append(ObjectChange(Stream.TRAINING_JOBS, (each.job.namespace, each.job.name), None))
            else:
                del self._held[job]
                ended.append(job)
                self._changes.append(change(told.model_copy(update={"status": TrainingJobStatus()})))
        return ended

    def _begin(self, job: TrainingJob, now: datetime) -> None:
        """Its status says since when it has its GPUs: when it ends by its own word, and what it loses if it ends for
        another."""
        placed = Observation(ConditionType.PLACED, True, ConditionReason.BOOKED)
        found = observed(job.status.conditions, [placed], generation=1, now=now)
        status = job.status.model_copy(update={"start_time": timestamp(now), "conditions": found})
        self._changes.append(change(job.model_copy(update={"status": status})))

    def _tell(
        self, job: Submission, told: TrainingJob, refusal: Refusal, kept: Reservation | None, now: datetime
    ) -> None:
        """Its status says why it waits and since when, keeps the end that its wait was given, and says whether room is
        kept for it."""
        before = told.status.pending
        is_known = before is not None and before.reason == refusal.reason
        is_kept = before is not None and before.reserved_since is not None
        if refusal.reason is None or (is_known and is_kept == (kept is not None)):
            return
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
        self._changes.append(change(told.model_copy(update={"status": status})))

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
