"""Verdicts of the last decision that stand: their inputs, and placement's answer, have not changed."""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from closeknit.api.names import QUEUE_LABEL, JobKey
from closeknit.api.objects import TrainingJob
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.job_volumes import NO_VOLUMES
from closeknit.cluster.store.difference import difference
from closeknit.lifecycle.verdict import Hold, Keep, Wait
from closeknit.lifecycle.writes.answers import NOTHING
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.memo.questions import Questions
from closeknit.scheduling.queue.entries import (
    NOT_ASKED,
    UNREAD,
    Case,
    JobQueue,
    Outcome,
    QueueEntry,
    QueuePlace,
    RequestShape,
    Schedule,
    is_kept_for,
    is_same_order,
    queue_place,
)
from closeknit.scheduling.queue.queue_reservation import QueueReservation
from closeknit.scheduling.queue.room import Room
from closeknit.scheduling.victims.preemption_state import Borrower, Preemptions


class Standing:
    """The jobs in queue order, with the last verdicts of those with the same inputs.

    `scene` is that of the first room: while `Room.freed` is the same, no verdict of this walk has freed anything.
    """

    def __init__(
        self,
        queue: JobQueue,
        memory: Memory,
        now: datetime,
        questions: Questions,
        rooms: tuple[QueueReservation, Preemptions],
        *,
        scene: Cluster,
        is_crowded: Callable[[TrainingJob], bool],
        beyond: Mapping[JobKey, str],
    ) -> None:
        """`rooms`: what is kept for a job, and what others make for one. `beyond`: `TemplateMemory.beyond` of now."""
        self._cluster = cluster = queue.cluster
        self._memory = memory
        self._now = now
        self._questions = questions
        self._reserving, self._preemptions = rooms
        self._is_crowded = is_crowded
        self._last = last = questions.last
        self._scene = scene
        has_last = memory.schedule is not None
        self._are_volumes_same = has_last and cluster.has_volumes_like(last.cluster)
        self._are_workloads_same = (
            has_last and cluster.kueue.is_same(last.cluster.kueue) and cluster.capacity.is_same(last.cluster.capacity)
        )
        self._are_pods_same = has_last and cluster.pods is last.cluster.pods
        # What is free for one job alone rests on its claims, too, and the size of its Pods on all of their nodes.
        self._are_views_same = cluster.nodes is last.cluster.nodes and cluster.claims is last.cluster.claims
        before = last.templates.beyond
        changed = () if beyond is before else (*beyond, *before)
        self._moved = frozenset(key for key in changed if beyond.get(key) != before.get(key))
        """Jobs whose templates came to be kept, or are no longer, or of which other words are told for that."""
        self._lowest = self._lowest_before = self._preemptions.lowest
        if self._preemptions.holders is not last.holders:
            self._lowest_before = min((each.priority for each in last.holders or ()), default=None)
        self._queue = iter(queue.cases)

    def next_case(self, room: Room, passed: list[QueueEntry]) -> Case | None:
        """The next job to decide in this room; None without any. Earlier jobs, whose verdicts stand, are added to
        `passed`. A QueueEntry is a job with the same inputs as last time."""
        # Hardly anything changes between two decisions: what stands is passed over at a third of a microsecond each.
        answers_of, pods_of = self._memory.answers.get, self._cluster.pods_by_job.get
        busy, put_aside, now = self._memory.busy, self._memory.put_aside, self._now
        are_same, volumes_are_same, giving_way = self._are_pods_same, self._are_volumes_same, self._last.giving_way
        workloads_are_same = self._are_workloads_same
        has_freed, moved = room.freed is not self._scene, self._moved
        reserving, refusal, known_wait = self._reserving, self._questions.refusal, self._reserving.known_wait
        preemptions, budget = self._preemptions, self._questions.budget
        holders, awaited, may_search = preemptions.holders, preemptions.by_victim, preemptions.may_search
        is_lower = self._lowest != self._lowest_before
        is_full, are_spares = budget.is_full, preemptions.are_spares
        for known in self._queue:
            if not isinstance(known, QueueEntry):
                return known
            key, shape = known.key, known.shape
            answers = answers_of(known.uid, NOTHING)
            if has_freed and isinstance(known.verdict, Keep) and room.cluster.booking_of(key) is None:
                return self._case(known)  # a job before it was given what this one held
            is_busy = bool(busy) and key in busy and key not in put_aside
            if is_busy and answers is known.answers and isinstance(known.verdict, Keep) and known.verdict.is_fit:
                pods = known.pods if are_same else pods_of(key, ())
                passed.append(known if pods is known.pods else replace(known, pods=pods, is_settled=False))
                continue
            is_same = (
                answers is known.answers
                and (known.until is None or now < known.until)
                and not (put_aside and key in put_aside)
                and not (is_busy and isinstance(known.verdict, Hold))  # nothing is decided on it meanwhile
                and not (moved and key in moved)
                and (shape not in giving_way or self._is_crowded(known.job))
                and (volumes_are_same or self._has_same_volumes(known))
                and (workloads_are_same or self._has_same_workload(known))
                and (are_same or (pods := pods_of(key, ())) is known.pods or pods == known.pods)
            )
            if not is_same or (awaited and key in awaited):
                return self._case(known)
            if known.verdict is NOT_ASKED and budget.is_passed_over(known.place):
                budget.leave(known.place)  # a job without GPUs, of which no policy says more
                passed.append(known)
                continue
            if is_full and known.is_refused and not is_kept_for(known.place):
                budget.leave(known.place)  # as `left_for_the_next` would have it
                passed.append(noted(known, self._questions.not_asked(shape)))
                continue
            # Most jobs are not elastic, and no spares are there to lend: a call for each is a tenth of the walk.
            is_open = (
                (are_spares or known.job.spec.elastic is not None)
                and shape is not None
                and isinstance(known.verdict, Wait)
                and self._may_get_less(known, shape, room)
            )
            is_answered = (known.is_settled and not is_open) and (
                shape is None
                or refusal(shape, room) is known.verdict
                or (known.behind is not None and known_wait(known, known.behind, room) is known.verdict)
            )
            others_hold = known.holders is not None and known.holders is not holders and may_search(known.place)
            if others_hold or (is_lower and self._is_above_now(known)):
                return known  # others hold GPUs now, who may make room for it
            # Room is still searched for it: where its refusal stands, nothing else of it is asked again. Not behind one
            # that was left for the next decision: that one comes first.
            is_offered = reserving.is_open and known.is_refused and not budget.is_passed_over(known.place)
            if is_offered and reserving.is_wanted(known, room.cluster):
                if shape is None or not (is_answered and known.scene is None and isinstance(known.verdict, Wait)):
                    return known
                reserving.offer(known, shape, known.verdict.refusal, room.cluster, is_trial=room.is_trial)
            is_scene_same = known.scene is not None and known.scene is room.scene and self._are_views_same
            if not (is_answered or (is_scene_same and not is_open)):
                return known
            if is_offered:
                reserving.pass_over(known, room.cluster)
            passed.append(known)
        return None

    def _may_get_less(self, known: QueueEntry, shape: RequestShape, room: Room) -> bool:
        """Whether a job that waits may get what the refusal of its shape says nothing of: fewer GPUs in another room
        than before, or beside another reservation, or spare nodes that are lent to it, and not to others."""
        if known.job.spec.elastic is not None:
            kept = self._reserving.current
            is_other_kept = kept is not None and all(kept is not each for each in self._last.reservations)
            if is_other_kept or room.scene is not self._last.scene:
                return True
        if not self._preemptions.are_spares:
            return False
        borrower = Borrower(known.key, shape, known.job.spec)
        return self._preemptions.may_borrow(borrower, -known.place[0], room.freed, self._reserving.current)

    def _is_above_now(self, known: QueueEntry) -> bool:
        """Whether somebody holds GPUs who may make room for a refused job, and nobody did."""
        lowest, before, priority = self._lowest, self._lowest_before, -known.place[0]
        if known.holders is not None or not known.is_refused or lowest is None:
            return False
        return lowest < priority and (before is None or before >= priority)

    def _case(self, known: QueueEntry) -> Case:
        """The job with its inputs of now."""
        return _case(self._cluster, self._memory, known.job, known.place)

    def _has_same_volumes(self, known: QueueEntry) -> bool:
        """Whether the volumes of an unchanged job have the same state; a job without any costs nothing."""
        if known.volumes is NO_VOLUMES or self._cluster.volumes_stand(known.volumes):
            return True
        return self._cluster.volumes_of(known.job) == known.volumes

    def _has_same_workload(self, known: QueueEntry) -> bool:
        """Whether Kueue and autoscalers say the same of an unchanged job. What Kueue says of a job without a Workload
        rests on what is served, and on its classes."""
        if self._cluster.capacity.of(known.job) is not known.capacity:
            return False
        if QUEUE_LABEL not in known.job.metadata.labels and known.workload is None:
            return True
        return known.workload is not None and self._cluster.kueue.workload_of(known.job) is known.workload


def in_order(cluster: Cluster, last: Schedule, memory: Memory) -> JobQueue:
    """The jobs with their inputs of now."""
    are_priorities_same = is_same_order(cluster, last.cluster)
    if are_priorities_same and cluster.jobs is last.cluster.jobs and len(cluster.jobs) == len(last.entries):
        return JobQueue(cluster, last.entries)
    changed = difference(last.cluster.jobs if are_priorities_same and last.entries else {}, cluster.jobs)
    cases: list[Case] = list(last.entries) if are_priorities_same else []
    new: list[Case] = []
    for key in changed.stored:
        case = _case(cluster, memory, cluster.jobs[key], queue_place(cluster, cluster.jobs[key]))
        known = last.by_key.get(key) if are_priorities_same else None
        if known is not None and known.place == case.place:
            cases[bisect_left(last.entries, case.place, key=_place)] = case
        else:
            new.append(case)
    if new or changed.gone:
        moved = {case.key for case in new}.union(changed.gone)
        cases = sorted([*(case for case in cases if case.key not in moved), *new], key=_place)
    return JobQueue(cluster, cases)


def _case(cluster: Cluster, memory: Memory, job: TrainingJob, place: QueuePlace) -> Case:
    uid = job.metadata.uid or ""
    pods = cluster.pods_by_job.get(job.key, ())
    answers, volumes = memory.answers.get(uid, NOTHING), cluster.volumes_of(job)
    workload, capacity = cluster.kueue.workload_of(job), cluster.capacity.of(job)
    return Case(job.key, uid, job, place, pods, answers, volumes, workload, capacity)


def _place(case: Case) -> QueuePlace:
    return case.place


def noted(case: Case, outcome: Outcome) -> QueueEntry:
    """The outcome for the memory: the last decision's own entry if nothing is new."""
    known = case.known
    if known is not None:
        if (outcome.verdict is NOT_ASKED or outcome.verdict is UNREAD) and known.is_refused:
            # It says what it said. Its shape's answer is not that of this scene, and what it was refused for alone may
            # be another: it is asked again.
            return known if known.scene is None else replace(known, scene=None)
        if outcome.is_as(known):
            # The words of a shape are told to those that have its very answer.
            is_shapes = known.is_refused and outcome.scene is None and outcome.verdict is not known.verdict
            return replace(known, verdict=outcome.verdict) if is_shapes else known
    return QueueEntry(
        case.key,
        case.uid,
        case.job,
        case.place,
        case.pods,
        case.answers,
        case.volumes,
        case.workload,
        case.capacity,
        outcome.verdict,
        outcome.shape,
        outcome.until,
        outcome.is_settled,
        outcome.scene,
        outcome.holders,
        outcome.behind,
    )
