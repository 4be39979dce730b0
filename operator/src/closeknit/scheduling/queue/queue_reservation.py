"""The reservation of one walk over the queue: the first job that waits for room gets it, and others pass or wait.

The rules for one job are in the room of reservations: from when on it fits (earliest.py), by which ends (reserve.py),
and whether another one passes (backfill.py). Here they are asked in the order of the queue, and answers of the last
walk are used again where what they rest on is the same.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.cluster.booking.pod_needs import PodNeeds, pod_needs
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.forest.domain import Domain
from closeknit.lifecycle.restart.lemons import Lemon
from closeknit.lifecycle.status.pauses import is_between
from closeknit.lifecycle.verdict import Refusal, Reservation, Reserve, Wait
from closeknit.lifecycle.writes.answers import Answers
from closeknit.placement.gang.cache import Tables
from closeknit.placement.refusals.ideal import could_place
from closeknit.placement.values.placement import Placement, Share
from closeknit.scheduling.queue.entries import (
    BehindKey,
    Case,
    QueueEntry,
    RequestShape,
    RoomSearch,
    Schedule,
    is_kept_for,
)
from closeknit.scheduling.queue.room import Room
from closeknit.scheduling.queue.waits_behind import WaitsBehind
from closeknit.scheduling.reservation.backfill import ReservedRoom
from closeknit.scheduling.reservation.earliest import earliest_fit
from closeknit.scheduling.reservation.expected_ends import ExpectedEnd, began_alike, expected_ends, terms_of
from closeknit.scheduling.reservation.patience import (
    PATIENT_AT_MOST,
    PatientAhead,
    PatientWait,
    at_level,
    fits_at_any_level,
    free_room,
    is_patient,
    patient_wait,
    sooner,
    told_sooner,
    torn_room,
)
from closeknit.scheduling.reservation.reserve import (
    aged_at,
    ends_may_change_at,
    ends_that_count,
    in_turn,
    outlasts_trial,
    reservation_of,
    waits_for_room,
)

# Searches after which room is searched for no other job: each may come to nothing, and a patient job has up to three.
TRIED = 3
# Shapes of one walk that are asked for on the empty cluster: some dozens, as honest queues have.
MOST_HOPELESS = 32
# Patient shapes of one walk that are asked whether they fit still, a millisecond each on 5,000 nodes. The last words of
# others hold for one decision more.
MOST_PATIENT = 3
# A search that comes to nothing is the dearest: on many nodes it takes a tenth of a second. The job itself is asked
# whatever happens meanwhile; only its reservation comes later.
VAIN_FOR = timedelta(seconds=10)
DEAR_FROM = 512  # nodes: a search on so many takes ten milliseconds

Ask = Callable[[Cluster], Placement | None]
"""Where a job would go in this cluster; None where it does not fit."""


class TakenBeside(NamedTuple):
    """All that a booking takes of a cluster."""

    shares: tuple[Share, ...]
    spares: tuple[Share, ...]
    pods: PodNeeds
    servers: int
    """How many parameter servers it has; their nodes follow from the shares."""
    holder: JobKey | None
    """The job, where it gives up what it holds there."""


class QueueReservation:
    """The reservation of one walk, and what is known of who waits behind it."""

    def __init__(
        self,
        last: Schedule,
        tables: Tables,
        now: datetime,
        may_keep_room: "MayKeepRoom",
        lemons: Callable[[], tuple[Lemon, ...]],
    ) -> None:
        """`lemons`: of this walk, worst first."""
        self.room: ReservedRoom | None = None
        """What is kept now."""
        self.is_open = TRIED > 0
        """Whether room is still searched for a job that does not fit."""
        self.searches: list[RoomSearch] = []
        """Of this walk."""
        self.reservations: list[Reservation] = []
        """All that has been kept on this walk: another placement where somebody passed."""
        self._told: Reservation | None = None
        """What its job is told instead of `room`, while a job on trial has moved that."""
        self.terms = last.terms
        """What the jobs say of their ends."""
        self.wake_at: datetime | None = None
        """When a reservation may change though nothing has changed."""
        self._may_keep_room = may_keep_room
        self._last = last
        self._tables = tables
        self._now = now.astimezone(UTC).replace(microsecond=0)  # as statuses date a booking
        self.behind = WaitsBehind(last, self._now, lemons)
        """Jobs that fit and wait."""
        self._fitting: dict[RequestShape, tuple[Cluster, bool]] = {}
        """Patient shapes that were asked for, the last cluster in which they were, and whether they fit there."""
        self._patient: dict[RequestShape, PatientAhead] = {}
        """Jobs of this walk that fit once their patience is over, and for which nothing is kept: of each shape that
        which is over last."""
        self._hopeless: dict[RequestShape, Domain] = {}
        """Shapes that fit nowhere in this empty copy of the cluster; a job without some devices may have another."""
        self._ends_of: Cluster | None = None
        self._asked_beside: tuple[ReservedRoom | None, dict[TakenBeside, Reservation | None]] = None, {}
        """What others might take beside this room, with the reservation then; None where it would be late."""
        self._beside: tuple[Cluster, Reservation, Cluster] | None = None
        """The last cluster in which others than the reserved GPUs were asked for."""
        self.known_ends = last.ends
        """When these are expected to end."""

    @property
    def current(self) -> Reservation | None:
        """The reservation now."""
        return None if self.room is None else self.room.reservation

    def is_wanted(self, known: QueueEntry, cluster: Cluster) -> bool:
        """Whether room is to be searched for a job that was refused as before."""
        return (
            self.is_open
            and known.shape is not None
            and isinstance(known.verdict, Wait)
            and self._waits_for_room(known.job, known.shape, known.verdict.refusal, cluster)
        )

    def _waits_for_room(self, job: TrainingJob, shape: RequestShape, refusal: Refusal, cluster: Cluster) -> bool:
        """Whether a job waits for room, or for the end of its patience in room that was kept for it. That it would fit
        may be said still of a patient one though others have got that room. One that gives way leaves room to others.
        """
        if not is_patient(refusal):
            return waits_for_room(refusal) and not shape.request.gives_way
        if _has_room(job):
            return True
        is_asked = shape in self._fitting or len(self._fitting) < MOST_PATIENT
        return is_asked and not self._fits(shape, cluster) and not shape.request.gives_way

    def pass_over(self, known: QueueEntry, cluster: Cluster) -> None:
        """The verdict on a job stands. A patient one that fits has its turn once its patience is over."""
        if self.is_open and known.shape is not None and isinstance(known.verdict, Wait):
            self._leave_turn(known.job, known.shape, known.verdict.refusal, cluster)

    def _leave_turn(self, job: TrainingJob, shape: RequestShape, refusal: Refusal, cluster: Cluster) -> None:
        """Nobody behind a patient job that fits, and for which nothing is kept, may keep it from that later."""
        if is_patient(refusal) and shape in self._fitting and self._fits(shape, cluster):
            wait = patient_wait(job, shape.request, cluster, self._tables, self._now)
            if wait is not None:
                self._note_patient(shape, PatientAhead(job, wait, cluster))

    def _note_patient(self, shape: RequestShape, job: PatientAhead) -> None:
        known = self._patient.get(shape)
        if known is None or known.over < job.over:
            self._patient[shape] = job

    def _fits(self, shape: RequestShape, cluster: Cluster) -> bool:
        """Whether a patient gang fits by now, at another level than it prefers."""
        known = self._fitting.get(shape)
        if known is None or known[0] is not cluster:
            known = self._fitting[shape] = cluster, fits_at_any_level(shape.request, cluster, self._tables)
        return known[1]

    def offer(
        self, case: Case, shape: RequestShape, refusal: Refusal, alone: Cluster, *, is_trial: bool = False
    ) -> None:
        """Reserves room for a job, if it is the first that does not fit into `alone`, the room without its own Pods; or
        keeps for a patient one what has come free there.
        `is_trial`: whether what is taken there is likely to be free again in a moment."""
        if not self.is_open:
            return
        if not self._waits_for_room(case.job, shape, refusal, alone):
            self._leave_turn(case.job, shape, refusal, alone)
            return
        if not self._may_keep_room(case.job, case.answers, is_trial=is_trial):
            return
        if self._is_hopeless(shape, alone):
            return
        found = self._room_of(case.job, shape, alone, is_trial=is_trial)
        if isinstance(found, PatientAhead):
            self._note_patient(shape, found)
        elif found is not None and self._leaves_turns(case, found):
            self._keep(found.moved(self._known(found.reservation)))
        self.is_open = self.room is None and len(self.searches) < TRIED

    def _leaves_turns(self, case: Case, room: ReservedRoom) -> bool:
        """Whether all patient jobs before this one get their GPUs in time though this is kept; whatever they wait for,
        it has its own turn once it has waited long, and what it was told stays."""
        aged = aged_at(case.job)
        if is_kept_for(case.place) or (aged is not None and aged <= self._now):
            return True
        return all(each.gets_room_beside(room, self._tables) for each in self._patient.values())

    def _room_of(
        self, job: TrainingJob, shape: RequestShape, alone: Cluster, *, is_trial: bool
    ) -> ReservedRoom | PatientAhead | None:
        """The first room in which a job fits. For one that is patient then, the first at its level before its patience
        is over; without any, that at another level, if its patience is over soon after it comes free."""
        asked, tables, now = shape.request, self._tables, self._now
        if asked.patient_level is not None and self._fits(shape, alone):
            wait = patient_wait(job, asked, alone, tables, now)
            if wait is None:
                return None
            if not _has_room(job):
                return PatientAhead(job, wait, alone)
            there = self._first_room(job, shape, alone, wait, is_trial=is_trial)
            return there or free_room(job, alone, wait, tables, now) or PatientAhead(job, wait, alone)
        first = self._first_room(job, shape, alone, None, is_trial=is_trial)
        if first is None:
            return None
        at = first.reservation.at
        wait = patient_wait(job, asked, alone, tables, at or now)
        if wait is None:
            return first
        if at is None:
            return first if wait.until - now <= PATIENT_AT_MOST else None
        there = at_level(first, wait, tables) or self._first_room(job, shape, alone, wait, is_trial=is_trial)
        waits = told_sooner(job, wait, at)
        if waits is not None:
            first = self._first_room(job, shape, alone, None, is_trial=is_trial, waits=waits) or first
            at = first.reservation.at or at
            wait = wait._replace(until=at + waits)
        return sooner(there, torn_room(job, first, wait, at)) or PatientAhead(job, wait, first.future)

    def _first_room(
        self,
        job: TrainingJob,
        shape: RequestShape,
        alone: Cluster,
        wait: PatientWait | None,
        *,
        is_trial: bool,
        waits: timedelta = timedelta(),
    ) -> ReservedRoom | None:
        """The first room in which a job fits: at any level, or at the one that it waits for before it waits no more.
        `waits`: how long after that is free it was to start when it was told."""
        search = self._search(job, shape, alone, wait, waits)
        search = self._while_on_trial(search, job, alone) if is_trial else search
        self.searches.append(search)
        if search.found is None:
            return None
        kept = reservation_of(job, search.cluster, search.ends, search.found)
        kept = kept if wait is None else replace(kept, patient_level=wait.asked.patient_level)
        return ReservedRoom(kept, shape.request, search.found.cluster)

    def _is_hopeless(self, shape: RequestShape, alone: Cluster) -> bool:
        """Whether the gang would fit nowhere if all were over. No room is searched for it, and it does not count among
        those that are tried: a few such jobs in front would leave all others without a reservation."""
        if self._hopeless.get(shape) is not alone.forest.empty:
            asked = replace(shape.request, patient_level=None)
            if asked.mig is not None or len(self._hopeless) >= MOST_HOPELESS:
                return False
            if could_place(alone, asked, self._tables):
                return False
            self._hopeless[shape] = alone.forest.empty
        return True

    def _ends(self, alone: Cluster) -> tuple[ExpectedEnd, ...]:
        """Of the jobs in this cluster; those of one walk ask in much the same."""
        if self._ends_of is None or self._ends_of.jobs is not alone.jobs or self._ends_of.pods is not alone.pods:
            self.terms = terms_of(alone, self._now, self.terms)
            self._ends_of, self.known_ends = alone, expected_ends(alone, self._now, self.terms, self.known_ends)
        return self.known_ends.ends

    def ending_by(self, until: datetime, cluster: Cluster) -> tuple[JobKey, ...]:
        """Jobs in this cluster that are expected to leave their GPUs until then, and are not late."""
        ending = [end for end in self._ends(cluster) if end.at <= until and not end.is_late]
        self._wake_by(end.soonest for end in ending)
        return tuple(end.job for end in ending)

    def _wake_by(self, moments: Iterable[datetime]) -> None:
        """Has the next decision come at the first of these, or at the whole second after it: `_now` is one, too, and
        before that second all is as it is now."""
        first = min([*moments, *filter(None, [self.wake_at])], default=None)
        if first is not None:
            whole = first.replace(microsecond=0)
            self.wake_at = whole if whole == first else whole + timedelta(seconds=1)

    def known_wait(self, case: Case, key: BehindKey, room: Room) -> Wait | None:
        """The wait of a job behind the reservation, where it is known from one that asks for the same."""
        return None if self.room is None else self.behind.known(case, key, room, self.room)

    def makes_room_for(self, job: TrainingJob, answer: Placement) -> bool:
        """Whether a job may certainly take this: nothing of it is kept for another, or it ends before."""
        return self.room is None or self.room.certainly_lets(job, answer, self._now)

    def passing(
        self, job: TrainingJob, answer: Placement, alone: Cluster, ask: Ask, *, is_trial: bool = False
    ) -> Placement | None:
        """What a job gets without delaying the reservation: other GPUs than `answer`, which placement gave it in
        `alone`, or these where the first job still fits beside it; None where it has to wait. `is_trial`: whether that
        is likely to be free again in a moment, so that the first job is not told of another room."""
        assert self.room is not None  # noqa: S101 - it does not certainly pass, for the type checker
        for found in (ask(self._without_kept(alone)), answer):
            beside = None if found is None else self._fits_beside(job, found)
            if beside is not None:
                if beside is not self.room.reservation:
                    told = (self._told or self.current) if is_trial else None
                    self._keep(self.room.moved(self._known(beside)))
                    self._told = told
                return found
        return None

    def _fits_beside(self, job: TrainingJob, found: Placement) -> Reservation | None:
        """See `ReservedRoom.beside`; many jobs of a walk would take the same, with Pods of the same size."""
        room, spec = self.room, job.spec
        assert room is not None  # noqa: S101 - somebody is asked whether he passes it, for the type checker
        if self._asked_beside[0] is not room:
            self._asked_beside = room, {}
        key = TakenBeside(
            found.shares,
            found.spares,
            pod_needs(spec),
            0 if spec.parameter_servers is None else spec.parameter_servers.replicas,
            None if room.future.booking_of(job.key) is None else job.key,
        )
        known = self._asked_beside[1]
        if key not in known:
            known[key] = room.beside(job, found, self._tables)
        return known[key]

    def _without_kept(self, alone: Cluster) -> Cluster:
        """The cluster as if what is kept could not be given out; many jobs of a walk ask in the same."""
        assert self.room is not None  # noqa: S101 - somebody is asked whether he passes it, for the type checker
        asked = alone, self.room.reservation
        if self._beside is None or self._beside[0] is not asked[0] or self._beside[1] is not asked[1]:
            self._beside = *asked, alone.without(self.room.devices)
        return self._beside[2]

    def with_kept(self, devices: Mapping[str, frozenset[str]]) -> Mapping[str, frozenset[str]]:
        """These GPUs and those of the reservation, by node."""
        kept = {} if self.room is None else self.room.devices
        return {node: devices.get(node, frozenset()) | kept.get(node, frozenset()) for node in {*devices, *kept}}

    def wait(self, case: Case, key: BehindKey | None, room: Room) -> Wait:
        """The wait of a job that may not pass; all of its `key` wait so, None where it is like no other."""
        assert self.room is not None  # noqa: S101 - it waits behind it, for the type checker
        return self.behind.wait(case, key, room, self.room.reservation)

    def withdraw(self, job: JobKey) -> None:
        """The job gets its GPUs otherwise, so that none need be kept for it."""
        if self.current is not None and self.current.job == job:
            self.reservations = [each for each in self.reservations if each.job != job]
            self.room = self._told = None
            self.is_open = len(self.searches) < TRIED

    def without_spares_there(self, job: TrainingJob, answer: Placement) -> Placement:
        """The placement without the spares that the reservation needs."""
        return answer if self.room is None else self.room.without_spares_there(job, answer, self._now)

    def note(self, job: TrainingJob, answer: Placement) -> None:
        """A job got this."""
        if self.room is not None:
            self.room = self.room.after(job, answer, self._now)

    def reserved(self, entries: list[QueueEntry], *, is_cut: bool) -> list[QueueEntry]:
        """The entries of the walk, with the reservation as the verdict on its job. Where the walk was cut, and nothing
        is kept on it, its job may not have been asked, and is told what it was told."""
        kept = None if self.current is None else self.current.job
        before = self._last.reservations[-1].job if self._last.reservations else None
        if kept is None and (before is None or is_cut):
            return entries
        theirs = {kept, before}
        return [self._with_its_own(entry) if entry.key in theirs else entry for entry in entries]

    def _with_its_own(self, entry: QueueEntry) -> QueueEntry:
        """The entry with the verdict of now; the last decision's where that is the same."""
        if not isinstance(entry.verdict, Wait):
            return entry
        refusal, kept = entry.verdict.refusal, self._told or self.current
        is_kept = kept is not None and kept.job == entry.key and entry.is_refused
        verdict = Reserve(refusal, kept) if is_kept and kept is not None else Wait(refusal)
        if verdict == entry.verdict:
            return entry
        found, known = replace(entry, verdict=verdict), self._last.by_key.get(entry.key)
        return known if known is not None and found.is_same(known) else found

    def _search(
        self, job: TrainingJob, shape: RequestShape, alone: Cluster, wait: PatientWait | None, waits: timedelta
    ) -> RoomSearch:
        """Where a job that does not fit goes, and when; the last decision's where that rests on the same."""
        ends, aged = self._ends(alone), aged_at(job)
        moments = [*ends_may_change_at(ends, self.terms, self._now)]
        moments += [at for at in [aged] if at is not None and at > self._now]
        self._wake_by(moments)
        ends = ends_that_count(job, alone, ends, self.terms, self._now, waits=waits)
        is_aged = wait is None and aged is not None and aged <= self._now
        ends = ends if wait is None else wait.ends_before(ends)
        for known in self._last.searches:
            is_alike = known.shape is shape and known.wait == wait and known.is_aged == is_aged
            if is_alike and self._is_vain(known, len(alone.nodes)):
                self._wake_by([known.at + VAIN_FOR])
                return known
            is_same = is_alike and known.ends == ends
            is_same = is_same and known.cluster.nodes is alone.nodes and known.cluster.joins_like(alone)
            if is_same and (not is_aged or began_alike(known.cluster, alone, self._now)):
                return known
        order = in_turn(alone, ends, self._now, is_aged=is_aged)
        asked = replace(shape.request, patient_level=None) if wait is None else wait.asked
        # The last answer for another shape is as good to begin from, where there is none for this one.
        last = sorted(
            (*self._last.searches, *self.searches), key=lambda each: (each.shape is not shape, each.wait != wait)
        )
        before = next((each.found for each in last if each.found is not None), None)
        found = earliest_fit(alone, asked, order, self._tables, before) if order else None
        return RoomSearch(alone, shape, wait, ends, is_aged, found, self._now)

    def _while_on_trial(self, found: RoomSearch, job: TrainingJob, alone: Cluster) -> RoomSearch:
        """The search before, where its room outlasts a trial; else the one of now."""
        alike = (each for each in self._last.searches if each.shape is found.shape and each.wait == found.wait)
        last = next(alike, None)
        if last is None or last.found is None or last.is_aged != found.is_aged:
            return found
        return last if outlasts_trial(last.found, alone, _starts_at(job, last), _starts_at(job, found)) else found

    def _is_vain(self, known: RoomSearch, nodes: int) -> bool:
        """Whether a search on so many nodes that found nothing a moment ago is not made again."""
        return nodes > DEAR_FROM and known.found is None and is_between(known.at, self._now, known.at + VAIN_FOR)

    def _known(self, found: Reservation) -> Reservation:
        """The last decision's own object where it is the same."""
        return next((each for each in self._last.reservations if each == found), found)

    def _keep(self, room: ReservedRoom) -> None:
        """What is kept from now on."""
        self.room, self._told = room, None
        self.reservations.append(room.reservation)


class MayKeepRoom(Protocol):
    """Whether room may be kept for a job, as far as the API server is concerned."""

    def __call__(self, job: TrainingJob, answers: Answers, *, is_trial: bool) -> bool:
        """`is_trial`: while others are tried that it refused before."""
        ...


def _starts_at(job: TrainingJob, search: RoomSearch) -> datetime | None:
    """When a job starts by a search; None where nothing says so."""
    return None if search.found is None else reservation_of(job, search.cluster, search.ends, search.found).at


def _has_room(job: TrainingJob) -> bool:
    """Whether room was kept for a job, by its status."""
    return job.status.pending is not None and job.status.pending.reserved_since is not None
