"""Values of one decision that the next one remembers: a job and its verdict, a shape and its refusal.

All of them are compared by identity: the Cluster shares what has not changed, so that the same object is asked once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from operator import is_
from typing import NamedTuple

from closeknit.api.affinity import NodeAffinity
from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import PendingReason
from closeknit.cluster.booking.booking import Booking
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.job_volumes import Volumes
from closeknit.cluster.kueue.workload import Workload
from closeknit.cluster.pods.pod import Pod
from closeknit.cluster.requested_capacity import AskedCapacity
from closeknit.lifecycle.restart.lemons import Lemon
from closeknit.lifecycle.status.conditions import moment
from closeknit.lifecycle.verdict import Refusal, Reservation, Verdict, Wait, WaitCause
from closeknit.lifecycle.writes.answers import Answers
from closeknit.placement.values.request import Request
from closeknit.scheduling.queue.movable_jobs import MovableJobs
from closeknit.scheduling.queue.room import Room
from closeknit.scheduling.reservation.earliest import EarliestFit
from closeknit.scheduling.reservation.expected_ends import ExpectedEnd, JobTerms, KnownEnds, run_time
from closeknit.scheduling.reservation.patience import PatientWait

QueuePlace = tuple[int, bool, bool, float, str, str, str]
"""Sorts as the queue: highest priority first, then who room is kept for, then by `stands_back` after the creation, age,
namespace and name."""
# A job of an hour is passed by those of a minute that come four hours after it at most. docs/queueing.md has the
# figures of one to ten times and of one to eight days, of the real decision and of tests/bench/queue_constants.py:
# with less the long jobs keep the short ones waiting whenever the queue is longer than that, and with more the longest
# wait exceeds 1.2 times that of a queue by age.
STANDS_BACK = 4
MOST_BACK = timedelta(days=6)
NOT_ASKED = Wait(Refusal(WaitCause.NOT_ASKED))
UNREAD = Wait(Refusal(WaitCause.NOT_ASKED))
"""No decision yet: the job's templates must be read first."""


def queue_place(cluster: Cluster, job: TrainingJob) -> QueuePlace:
    """Where the job stands in the queue; no moment changes it, so that nobody moves while nothing happens.

    A job that room is kept for stays in front: who comes later would put off what it was told. One that was edited
    since asks for something else, and has its place among all. A job without a creationTimestamp, which only a file can
    have, comes after those of its priority that have one.
    """
    created, pending = job.metadata.creation_timestamp, job.status.pending
    was_edited = job.status.observed_generation not in {None, job.metadata.generation}
    has_reservation = pending is not None and pending.reserved_since is not None and not was_edited
    due_s = 0.0 if created is None else moment(created).timestamp() + stands_back(job).total_seconds()
    return (
        -cluster.priority(job),
        not has_reservation,
        created is None,
        due_s,
        created or "",
        job.key.namespace,
        job.key.name,
    )


def is_kept_for(place: QueuePlace) -> bool:
    """Whether room is kept for the job of this place, by its status."""
    return not place[1]


def stands_back(job: TrainingJob) -> timedelta:
    """How much later than it came a job stands in the queue: the longer it declares to run, the more, up to a bound.

    So short jobs go first, and nobody is passed by those that come more than MOST_BACK after it. One that declares
    nothing, or has run longer than it said, stands as far back as any: one that tells the truth never stands behind the
    place of those who are silent.
    """
    declared = run_time(job.spec)
    if declared is None:
        return MOST_BACK
    trained_s = job.status.cost.trained_seconds if job.status.cost is not None else 0  # any number, in a written status
    return MOST_BACK if trained_s >= declared.total_seconds() else min(STANDS_BACK * declared, MOST_BACK)


class GpuHolder(NamedTuple):
    """A job that holds GPUs."""

    key: JobKey
    priority: int
    booking: Booking


Holders = tuple[GpuHolder, ...]
"""All of them; the same object as long as they, their priorities and what they hold are the same."""
UNSEARCHED: Holders = ()
"""In place of the holders of whom no one could make room: that was not looked for yet."""


@dataclass(frozen=True, slots=True, eq=False)
class RequestShape:
    """One request that several jobs share, as one object."""

    request: Request


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One job and its inputs beside the room."""

    key: JobKey
    uid: str
    job: TrainingJob
    place: QueuePlace
    pods: tuple[Pod, ...]
    answers: Answers
    volumes: Volumes
    """The state of its volumes."""
    workload: Workload | None
    """Its own Workload, of Kueue."""
    capacity: AskedCapacity | None
    """What is asked of an autoscaler for it."""

    @property
    def known(self) -> "QueueEntry | None":
        """The entry of the last decision, where the job was asked with the very same then."""
        return None


@dataclass(frozen=True, slots=True, eq=False)
class QueueEntry(Case):
    """A case and its outcome."""

    verdict: Verdict
    shape: RequestShape | None = None
    """Its request to placement; None where placement was not asked."""
    until: datetime | None = None
    """When the verdict may change though nothing has changed."""
    is_settled: bool = True
    """Whether the verdict depends only on these fields, or on the answer to its shape."""
    scene: Cluster | None = None
    """The cluster for which only this job was refused: its old Pods were counted as gone, or its Pods are too large."""
    holders: Holders | None = None
    """The holders of GPUs of whom no one could make room for it; None where it does not depend on them."""
    behind: "BehindKey | None" = None
    """What it waits with behind the reservation of another; None where it does not, or not like others."""

    @property
    def known(self) -> "QueueEntry":
        """Itself."""
        return self

    @property
    def is_refused(self) -> bool:
        """Whether placement had no room for it."""
        return isinstance(self.verdict, Wait) and self.verdict.refusal.cause is WaitCause.NO_FIT

    @property
    def is_behind(self) -> bool:
        """Whether it fits, and waits behind the reservation of another."""
        return isinstance(self.verdict, Wait) and self.verdict.refusal.reason is PendingReason.BEHIND_RESERVATION

    def is_same(self, other: "QueueEntry") -> bool:
        """Whether both are equal, inputs and outcome."""
        return (
            self.job is other.job
            and self.place == other.place
            and self.pods is other.pods
            and self.answers is other.answers
            and self.volumes is other.volumes
            and self.workload is other.workload
            and self.capacity is other.capacity
            and self.verdict == other.verdict
            and self.shape is other.shape
            and self.until == other.until
            and self.is_settled == other.is_settled
            and self.scene is other.scene
            and self.holders is other.holders
            and self.behind == other.behind
        )

    def says_like(self, other: "QueueEntry") -> bool:
        """Whether both jobs wait with the same message."""
        if not (isinstance(self.verdict, Wait) and isinstance(other.verdict, Wait)):
            return False
        one, two = self.verdict.refusal, other.verdict.refusal
        return (one.reason, one.message, one.nearest) == (two.reason, two.message, two.nearest)


class Outcome:
    """A policy's result for one job; `room` is left for the next one, None where it is the same."""

    __slots__ = ("behind", "holders", "is_settled", "room", "scene", "shape", "until", "verdict")

    def __init__(
        self,
        verdict: Verdict,
        shape: RequestShape | None = None,
        *,
        until: datetime | None = None,
        is_settled: bool = True,
        scene: Cluster | None = None,
        room: Room | None = None,
        holders: Holders | None = None,
        behind: "BehindKey | None" = None,
    ) -> None:
        self.behind = behind
        self.holders = holders
        self.room = room
        self.verdict = verdict
        self.shape = shape
        self.until = until
        self.is_settled = is_settled
        self.scene = scene

    def is_as(self, known: QueueEntry) -> bool:
        """Whether both are equal."""
        return (
            (self.verdict is known.verdict or self.verdict == known.verdict)
            and self.is_settled == known.is_settled
            and self.scene is known.scene
            and self.holders is known.holders
            and self.shape is known.shape
            and self.until == known.until
            and self.behind == known.behind
        )


@dataclass(frozen=True, slots=True, eq=False)
class ShapeRefusal:
    """A shape that did not fit, with the message."""

    scene: Cluster
    """Where it was last asked; the same scene gives the same answer."""
    freed: Cluster
    """`Room.freed` where it was asked: on this walk each room of the same gives the same answer."""
    told_of: Cluster
    """The scene that the message describes."""
    wait: Wait


@dataclass(frozen=True, slots=True, eq=False)
class RoomSearch:
    """A search for the room of a job that does not fit, and its inputs."""

    cluster: Cluster
    shape: RequestShape
    wait: PatientWait | None
    """For its level, before its patience is over; None for a search at any."""
    ends: tuple[ExpectedEnd, ...]
    is_aged: bool
    """Whether the job has waited so long that room is kept for it also where nothing says when it comes free."""
    found: EarliestFit | None
    at: datetime


Declared = tuple[str | None, int | None]
"""How long a job runs, by its declaration and its deadline."""


class AskedBehind(NamedTuple):
    """What a job asks for that fits, and would delay the reservation."""

    shape: RequestShape
    is_whole: bool
    """Whether it takes no more than one machine for now, which its shape does not say."""
    choices: tuple[NodeAffinity, ...]
    """Of its volumes."""


class BehindKey(NamedTuple):
    """Jobs of one key wait behind a reservation with the same words."""

    asked: AskedBehind
    namespace: str
    declared: Declared


class LentKey(NamedTuple):
    """For whom spare nodes are lent in vain."""

    shape: RequestShape
    owners: tuple[JobKey, ...]
    """Jobs that lend theirs."""
    queues: frozenset[str]
    """Queues that lend theirs."""
    declared: Declared | None = None
    """None: whatever a job declares."""


class LentInVain(NamedTuple):
    """What it rests on that spare nodes are lent in vain."""

    scene: Cluster
    """Where it was asked."""
    freed: Cluster
    """`Room.freed` there: within one walk it stands as long as nothing is freed."""
    kept: Reservation | None
    """What a job of the key's declaration would delay; None where it does not fit at all."""


@dataclass(frozen=True, slots=True, eq=False)
class WaitBehind:
    """A job that fits and would delay the reservation, with the message."""

    scene: Cluster
    """Where it was asked; the same scene and reservation give the same answer."""
    freed: Cluster
    """`Room.freed` where it was asked, as ShapeRefusal has it."""
    reservation: Reservation
    lemons: tuple[Lemon, ...]
    """Where it would go last."""
    wait: Wait


class JobQueue(NamedTuple):
    """All jobs of a cluster in queue order."""

    cluster: Cluster
    cases: Sequence[Case]
    """The last decision's entry for each unchanged job with the same place."""

    @property
    def has_one_priority(self) -> bool:
        """Whether no job stands before another by its priority; the first has the highest."""
        if not self.cases:
            return True
        return self.cluster.priority(self.cases[0].job) == self.cluster.priority(self.cases[-1].job)


class Weighed(NamedTuple):
    """A job, and the memory of its templates while it waits."""

    job: TrainingJob
    weight_bytes: int
    """0 for a job that does not wait."""
    place: QueuePlace | None
    """None for a job that does not wait."""


@dataclass(frozen=True, slots=True)
class TemplateMemory:
    """What the templates of all jobs that wait come to."""

    beyond: Mapping[JobKey, str] = field(default_factory=dict)
    """Jobs whose templates are not kept, with the message."""
    jobs: Mapping[JobKey, TrainingJob] = field(default_factory=dict)
    """Those that are weighed."""
    weighed: Mapping[JobKey, Weighed] = field(default_factory=dict)
    sums: Mapping[str, int] = field(default_factory=dict)
    """Bytes of each namespace."""


NOTHING_WAITS = TemplateMemory()


@dataclass(frozen=True, slots=True, eq=False)
class Schedule(Mapping[JobKey, Verdict]):
    """The verdicts on all jobs, in queue order."""

    cluster: Cluster
    """The Cluster of these verdicts."""
    booked: Cluster
    """That Cluster with all new bookings; the same object without any."""
    scene: Cluster
    """The first Cluster that is equal to it for placement."""
    entries: tuple[QueueEntry, ...] = ()
    by_key: Mapping[JobKey, QueueEntry] = field(default_factory=dict)
    shapes: Mapping[Request, RequestShape] = field(default_factory=dict)
    giving_way: frozenset[RequestShape] = frozenset()
    """Shapes of jobs that wait only while many others do."""
    refused: Mapping[RequestShape, ShapeRefusal] = field(default_factory=dict)
    """In the order of their messages, the oldest first."""
    reservations: tuple[Reservation, ...] = ()
    """What is kept for the first job that waits for room; before it, what was on the way of the walk."""
    reservation_until: datetime | None = None
    """When it may change though nothing has changed."""
    searches: tuple[RoomSearch, ...] = ()
    """For the room of the first jobs that wait for some."""
    behind: Mapping[BehindKey, WaitBehind] = field(default_factory=dict)
    terms: JobTerms = JobTerms()  # noqa: RUF009 - immutable
    """What jobs say of their ends; none where nobody waited for room."""
    ends: KnownEnds = KnownEnds()  # noqa: RUF009 - immutable
    """When they are expected to end; likewise."""
    renewed_at: datetime | None = None
    """When old words were last renewed."""
    templates: TemplateMemory = NOTHING_WAITS
    unread: tuple[JobKey, ...] = ()
    """Jobs whose templates must be read first, in queue order."""
    came_to: Mapping[str, QueuePlace] = field(default_factory=dict)
    """The last job with a question, for each namespace with more jobs than its ration."""
    is_cut: bool = False
    """Whether jobs are left for the next decision, because this one gives GPUs to as many as one gives."""
    holders: Holders | None = None
    """Where jobs differ in priority."""
    lent_in_vain: Mapping[LentKey, LentInVain] = field(default_factory=dict)
    preempted_to: QueuePlace | None = None
    """The last job for which victims were looked for in turn, where others behind it were not looked at."""
    movable: MovableJobs = MovableJobs()  # noqa: RUF009 - immutable
    """Jobs that hold GPUs and allow to be moved while they run, when last somebody waited for room."""
    wake_at: datetime | None = None
    """When a verdict, or its message, may change though nothing has changed."""

    @property
    def given(self) -> Iterator[JobKey]:
        """Jobs that are others in `booked` than in `cluster`: those that got something, and those that give something.
        What stands there for them has only as much of a status as the walk needs."""
        stored = self.cluster.jobs.get
        return (key for key, job in self.booked.jobs.items() if stored(key) is not job)

    def of(self, entries: Sequence[QueueEntry], last: "Schedule") -> "Schedule":
        """This schedule with these entries and the indexes over them, which are `last`'s where nothing is new."""
        if len(entries) == len(last.entries) and all(map(is_, entries, last.entries)):
            known = last.entries, last.by_key, last.shapes, last.giving_way
        else:
            shapes = {entry.shape for entry in entries if entry.shape is not None}
            known = (
                tuple(entries),
                {entry.key: entry for entry in entries},
                {shape.request: shape for shape in shapes},
                frozenset(shape for shape in shapes if shape.request.gives_way),
            )
        return replace(self, entries=known[0], by_key=known[1], shapes=known[2], giving_way=known[3])

    def __getitem__(self, key: JobKey) -> Verdict:
        return self.by_key[key].verdict

    def __iter__(self) -> Iterator[JobKey]:
        return iter(self.by_key)

    def __len__(self) -> int:
        return len(self.by_key)


def is_same_scene(one: Cluster, other: Cluster) -> bool:
    """Whether placement answers every request alike in both. It decides by the forest and by what joins the nodes; what
    else it reads of a node only fills messages."""
    return one is other or (one.forest is other.forest and one.joins_like(other))


def is_same_order(one: Cluster, other: Cluster) -> bool:
    """Whether an unchanged job has the same place in both queues."""
    return one.priorities is other.priorities and one.default_priority == other.default_priority
