"""Room that is kept for the first job that cannot start, and who passes it: backfill, on one walk over the queue.

The first job in queue order that does not fit gets a reservation: the earliest moment at which it fits, by the ends
that running jobs declare, and where. A job behind it starts if it ends before, by its own declaration; if its nodes are
others; if it fits on other GPUs; or if the first job still fits at that moment beside it. While a job that is waited
for runs longer than it declared, nobody passes by a declaration, so that no number of lies delays the first job for
ever. A job for which no moment can be said is passed by all, until it has waited long: then room is kept for it where
the fewest jobs have to end, those that began first before others. So it is, too, where a moment was said for a job that
has waited long, and one that passed it runs longer than it declared: nobody who comes later moves that room.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import groupby

from closeknit.api.names import JobKey, PendingReason
from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob import TrainingJobSpec
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.book import assumed
from closeknit.lifecycle.reserved_words import behind_reservation
from closeknit.lifecycle.status.conditions import moment
from closeknit.lifecycle.status.pauses import is_between
from closeknit.lifecycle.status.pending import traits
from closeknit.lifecycle.verdict import Refusal, Reservation, Reserve, Wait, WaitCause
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import place
from closeknit.placement.values.placement import Placement
from closeknit.scheduling.memo.questions import MANY_NODES
from closeknit.scheduling.queue.entries import (
    BehindKey,
    Case,
    QueueEntry,
    RequestShape,
    RoomSearch,
    Schedule,
    WaitBehind,
)
from closeknit.scheduling.queue.room import Room
from closeknit.scheduling.reservation.earliest import EarliestFit, earliest_fit
from closeknit.scheduling.reservation.expected_ends import (
    ExpectedEnd,
    begun,
    expected_ends,
    run_time,
    silent_jobs,
    terms_of,
)

# Jobs for which room is searched until one has a reservation: a search may come to nothing.
TRIED = 3
# A day's queue is usual where GPUs are short, and half a day is worth idle GPUs to a gang that small jobs pass: from
# then on it waits as long as the jobs on its GPUs run, and no longer.
AGED = timedelta(hours=12)

# A search that comes to nothing is the dearest: on many nodes it takes a tenth of a second. The job itself is asked
# whatever happens meanwhile; only its reservation comes later.
VAIN_FOR = timedelta(seconds=10)

Ask = Callable[[Cluster], Placement | None]
"""Where a job would go in this cluster; None where it does not fit."""


class Backfill:
    """The reservation of one walk, and what is known of who waits behind it."""

    def __init__(self, last: Schedule, tables: Tables, now: datetime) -> None:
        self.current: Reservation | None = None
        self.is_open = TRIED > 0
        """Whether room is still searched for a job that does not fit."""
        self.searches: list[RoomSearch] = []
        """Of this walk."""
        self.reservations: list[Reservation] = []
        """All that `current` has been on this walk: another placement where somebody passed."""
        self.behind: dict[BehindKey, WaitBehind] = {}
        """Jobs that fit and wait, as far as their shape and declaration tell."""
        self.terms = last.terms
        """What the jobs say of their ends."""
        self.wake_at: datetime | None = None
        """When a reservation may change though nothing has changed."""
        self._last = last
        self._tables = tables
        self._now = now.astimezone(UTC).replace(microsecond=0)  # as statuses date a booking
        self._future: Cluster | None = None
        self._ends_of: Cluster | None = None
        self._ends_there: tuple[ExpectedEnd, ...] = ()
        self._booked: list[TrainingJob] = []
        """Those that got GPUs behind the reservation, and hold them longer."""

    def is_wanted(self, known: QueueEntry) -> bool:
        """Whether room is to be searched for a job that was refused as before."""
        return known.shape is not None and isinstance(known.verdict, Wait) and self._is_wanted(known.verdict.refusal)

    def _is_wanted(self, refusal: Refusal) -> bool:
        """Whether room is to be searched for a job that is refused so: for want of room, and not of patience."""
        if not self.is_open:
            return False
        return refusal.cause is WaitCause.NO_FIT and traits(refusal.reason).is_for_room and not refusal.ends

    def offer(self, case: Case, shape: RequestShape, refusal: Refusal, alone: Cluster) -> None:
        """Reserves room for a job that does not fit into `alone`, the room without its own Pods, if it is the first."""
        if not self._is_wanted(refusal):
            return
        ends = self._ends(alone)
        aged_at = self._aged_at(case.job)
        is_aged = aged_at is not None and aged_at <= self._now
        moments = [end.at for end in ends[:1]] + [at for at in [aged_at] if at is not None and at > self._now]
        self.wake_at = min([*moments, *filter(None, [self.wake_at])], default=None)
        if aged_at is not None and is_aged and self._is_misled(aged_at - AGED, alone, ends):
            ends = tuple(end for end in ends if self.terms.by_job[end.job].is_forced(end))
        search = self._search(shape, alone, ends, is_aged=is_aged)
        self.searches.append(search)
        self.is_open = search.found is None and len(self.searches) < TRIED
        if search.found is not None:
            self._keep(_reservation(case.key, alone, ends, search.found))
            self._future = search.found.cluster

    def _ends(self, alone: Cluster) -> tuple[ExpectedEnd, ...]:
        """Of the jobs in this cluster; those of one walk ask in much the same."""
        if self._ends_of is None or self._ends_of.jobs is not alone.jobs or self._ends_of.pods is not alone.pods:
            self.terms = terms_of(alone, self._now, self.terms)
            self._ends_of, self._ends_there = alone, expected_ends(alone, self._now, self.terms)
        return self._ends_there

    def known_wait(self, case: Case, shape: RequestShape, room: Room) -> Wait | None:
        """The wait of a job behind the reservation, where it is known from one that asks and declares the same."""
        key = _behind_key(case, shape)
        found = self.behind.get(key)
        if found is not None and found.freed is room.freed and found.reservation is self.current:
            return found.wait
        before = self._last.behind.get(key)
        if before is None or before.scene is not room.scene or before.reservation is not self.current:
            return None
        self.behind[key] = WaitBehind(room.scene, room.freed, before.reservation, before.wait)
        return before.wait

    def makes_room_for(self, job: TrainingJob, answer: Placement) -> bool:
        """Whether a job may certainly take this: nothing of it is kept for another, or it ends before."""
        kept = self.current
        if kept is None or kept.job == job.key or self._ends_before(job.spec, answer, kept):
            return True
        return _are_apart(answer, kept.placement)

    def passing(self, job: TrainingJob, answer: Placement, alone: Cluster, ask: Ask) -> Placement | None:
        """What a job gets without delaying the reservation: other GPUs than `answer`, which placement gave it in
        `alone`, or these where the first job still fits beside it; None where it has to wait."""
        kept = self.current
        assert kept is not None  # noqa: S101 - for the type checker
        for found in (ask(alone.without(_devices(kept.placement))), answer):
            if found is not None and (_are_apart(found, kept.placement) or self._makes_way(job, found)):
                return found
        return None

    def with_kept(self, devices: Mapping[str, frozenset[str]]) -> Mapping[str, frozenset[str]]:
        """These GPUs and those of the reservation, by node."""
        kept = {} if self.current is None else _devices(self.current.placement)
        return {node: devices.get(node, frozenset()) | kept.get(node, frozenset()) for node in {*devices, *kept}}

    def wait(self, case: Case, shape: RequestShape, room: Room, *, is_shared: bool) -> Wait:
        """The wait of a job that may not pass. `is_shared`: whether it is the same for all that ask and declare so."""
        assert self.current is not None  # noqa: S101 - it waits behind it, for the type checker
        words = behind_reservation(case.key.namespace, case.job.spec, self.current)
        found = Wait(Refusal(WaitCause.REFUSED, PendingReason.BEHIND_RESERVATION, words))
        if is_shared:
            self.behind[_behind_key(case, shape)] = WaitBehind(room.scene, room.freed, self.current, found)
        return found

    def withdraw(self, job: JobKey) -> None:
        """The job gets its GPUs otherwise, so that none need be kept for it."""
        if self.current is not None and self.current.job == job:
            self.reservations = [each for each in self.reservations if each.job != job]
            self.current, self._future, self._booked = None, None, []
            self.is_open = len(self.searches) < TRIED

    def without_spares_there(self, job: TrainingJob, answer: Placement) -> Placement:
        """The placement without the spares that the reservation needs."""
        if self.current is None or not answer.spares or self._ends_before(job.spec, answer, self.current):
            return answer
        nodes = {share.node for share in self.current.placement.shares}
        return replace(answer, spares=tuple(share for share in answer.spares if share.node not in nodes))

    def note(self, job: TrainingJob, answer: Placement) -> None:
        """A job got this."""
        if self.current is not None and not self._ends_before(job.spec, answer, self.current):
            self._booked.append(assumed(job, answer))

    def reserved(self, entries: list[QueueEntry]) -> list[QueueEntry]:
        """The entries of the walk, with the reservation as the verdict on its job."""
        kept = None if self.current is None else self.current.job
        before = self._last.reservations[-1].job if self._last.reservations else None
        if kept is None and before is None:
            return entries
        return [self._with_its_own(entry) if entry.key in {kept, before} else entry for entry in entries]

    def _with_its_own(self, entry: QueueEntry) -> QueueEntry:
        """The entry with the verdict of now; the last decision's where that is the same."""
        if not isinstance(entry.verdict, Wait):
            return entry
        refusal, kept = entry.verdict.refusal, self.current
        is_kept = kept is not None and kept.job == entry.key and entry.is_refused
        verdict = Reserve(refusal, kept) if is_kept and kept is not None else Wait(refusal)
        if verdict == entry.verdict:
            return entry
        found, known = replace(entry, verdict=verdict), self._last.by_key.get(entry.key)
        return known if known is not None and found.is_same(known) else found

    def _search(
        self, shape: RequestShape, alone: Cluster, ends: tuple[ExpectedEnd, ...], *, is_aged: bool
    ) -> RoomSearch:
        for known in self._last.searches:
            if known.shape is shape and known.is_aged == is_aged and self._is_vain(known, len(alone.nodes)):
                self.wake_at = min(filter(None, (self.wake_at, known.at + VAIN_FOR)))
                return known
            is_same = known.shape is shape and known.is_aged == is_aged and known.ends == ends
            if is_same and known.cluster.nodes is alone.nodes and known.cluster.joins_like(alone):
                return known
        order: list[Sequence[JobKey]] = [[end.job for end in same] for _, same in groupby(ends, key=lambda end: end.at)]
        if is_aged:
            order += [[job] for job in silent_jobs(alone, self._now, ends)]
        asked = replace(shape.request, patient_level=None)
        found = earliest_fit(alone, asked, order, self._tables) if order else None
        return RoomSearch(alone, shape, ends, is_aged, found, self._now)

    def _is_misled(self, since: datetime, cluster: Cluster, ends: tuple[ExpectedEnd, ...]) -> bool:
        """Whether a job that got its GPUs since then runs longer than it declared. Such ends move the room of who waits
        to and fro between domains, so that it comes free in none."""
        return any(end.is_late and begun(cluster.jobs[end.job], self._now) >= since for end in ends)

    def _is_vain(self, known: RoomSearch, nodes: int) -> bool:
        """Whether a search on so many nodes that found nothing a moment ago is not made again."""
        return nodes > MANY_NODES and known.found is None and is_between(known.at, self._now, known.at + VAIN_FOR)

    def _keep(self, found: Reservation) -> None:
        """The reservation from now on; the last decision's own object where it is the same."""
        known = next((each for each in self._last.reservations if each == found), found)
        self.current = known
        self.reservations.append(known)

    def _ends_before(self, spec: TrainingJobSpec, answer: Placement, kept: Reservation) -> bool:
        """Whether a job with these GPUs, which may be fewer than it asks for, ends before the room is needed."""
        lasts = run_time(spec, None if spec.elastic is None else sum(len(share.gpus) for share in answer.shares))
        return kept.at is not None and not kept.late and lasts is not None and self._now + lasts <= kept.at

    def _makes_way(self, job: TrainingJob, answer: Placement) -> bool:
        """Whether the reservation still fits at its moment with a job there, elsewhere if need be."""
        assert self.current is not None  # noqa: S101 - called with one, for the type checker
        assert self._future is not None  # noqa: S101 - as above
        future = self._future
        for booked in (*self._booked, assumed(job, answer)):
            future = future.with_job(booked)
        asked = self.searches[-1].shape.request
        found = place(future, replace(asked, patient_level=None), self._tables)
        if not isinstance(found, Placement):
            return False
        if found != self.current.placement:
            self._keep(replace(self.current, placement=found))
        return True

    def _aged_at(self, job: TrainingJob) -> datetime | None:
        """When a job will have waited long; None where it is not known since when it waits."""
        pending = job.status.pending
        return None if pending is None else moment(pending.queued_since or pending.since) + AGED


def _reservation(job: JobKey, cluster: Cluster, ends: Sequence[ExpectedEnd], found: EarliestFit) -> Reservation:
    """The reservation of a job that fits once some in `cluster` have ended."""
    by_job = {end.job: end for end in ends}
    nodes = {share.node for share in found.placement.shares}
    awaits = tuple(job for job in found.ended if _is_on(job, nodes, cluster)) or found.ended[-1:]
    dated = [by_job.get(job) for job in found.ended]
    at = None if None in dated else max(end.at for end in dated if end is not None)
    late = tuple(job for job in awaits if job in by_job and by_job[job].is_late)
    return Reservation(job, at, found.placement, awaits, late)


def _is_on(job: JobKey, nodes: set[str], cluster: Cluster) -> bool:
    """Whether a job holds something of these nodes, by its booking or by Pods that are left."""
    booking = cluster.booking_of(job)
    if booking is not None:
        return any(share.node in nodes for share in booking.shares)
    return any(pod.place in nodes for pod in cluster.pods_of(job) if pod.is_live)


def _behind_key(case: Case, shape: RequestShape) -> BehindKey:
    spec = case.job.spec
    return shape, case.key.namespace, spec.expected_duration, spec.active_deadline_seconds


def _are_apart(one: Placement, other: Placement) -> bool:
    """Whether they have no node in common."""
    nodes = {share.node for share in other.shares}
    return not any(share.node in nodes for share in (*one.shares, *one.spares))


def _devices(placement: Placement) -> dict[str, frozenset[str]]:
    """UUIDs of the GPUs, or of the MIG device, by node."""
    return {
        share.node: frozenset([share.mig_device] if share.mig_device else filter(None, share.uuids))
        for share in placement.shares
    }
