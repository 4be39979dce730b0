"""Who gets GPUs, who keeps them and who waits: one decision over all jobs, in queue order."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property

from closeknit.api.affinity import NodeAffinity
from closeknit.api.names import JobKey, PendingReason
from closeknit.api.objects import TrainingJob
from closeknit.cluster.booking.booking import Booking
from closeknit.cluster.booking.job import is_whole
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.job_volumes import NO_VOLUMES, Volumes
from closeknit.cluster.pods.pod import Pod
from closeknit.lifecycle.attempt.avoided_nodes import AvoidedNodes, avoided_nodes
from closeknit.lifecycle.attempt.own_gpus import with_own_gpus_free
from closeknit.lifecycle.attempt.own_pods import taken
from closeknit.lifecycle.book import assumed, too_large, too_many
from closeknit.lifecycle.mistake import OwnMistake, guarded
from closeknit.lifecycle.status.preference import patient_until
from closeknit.lifecycle.verdict import Book, Keep, Refusal, Wait, WaitCause
from closeknit.lifecycle.writes.answers import NOTHING, Answers, taken_words
from closeknit.placement.candidates.node_filter import meets
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place, place
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import NOBODY, Request, request
from closeknit.scheduling.memo.entries import (
    NOTHING_WAITS,
    Outcome,
    QueueEntry,
    QueuePlace,
    RequestShape,
    Schedule,
    ShapeRefusal,
    is_same_scene,
)
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.memo.question_budget import QuestionBudget, steps_of_selection, steps_of_words
from closeknit.scheduling.memo.refusal_words import AGAIN, advised, renewed, wait_for, worded
from closeknit.scheduling.policy.allowance import allowances, needs_templates
from closeknit.scheduling.policy.backlog import Backlog, Contender, backlog, contender
from closeknit.scheduling.policy.gates import gate
from closeknit.scheduling.policy.order import queue_place
from closeknit.scheduling.policy.patience import asked_again_at, patient
from closeknit.scheduling.policy.probation import Probation
from closeknit.scheduling.policy.reuse import is_fit_again

_NOT_ASKED = Wait(Refusal(WaitCause.NOT_ASKED))
MANY_NODES = 512  # the words of a refusal on so many take a few milliseconds


def schedule(cluster: Cluster, tables: Tables, memory: Memory, now: datetime) -> Schedule:
    """The verdict on every job: the one place that decides who gets, keeps and waits.

    The queue is walked once, and what is booked for a job is counted before the next one is looked at. A job that does
    not fit reserves nothing; one whose write is under way is given what it would get, like any other. What was refused
    on this walk stays so for the rest of it, since bookings only take. On the same Cluster the same comes out whatever
    the memory holds, but for the numbers in a refusal's words, which follow later, and for jobs of a namespace that has
    had its ration: they keep what was said of them, and are asked a moment later.
    """
    walk = _Walk(cluster, tables, memory, now)
    entries = walk.entries()
    last = walk.last
    refused, told = renewed(walk.refused, last, tables, now, is_quiet=walk.is_quiet, is_trial=walk.is_trial)
    advice = advised(refused, memory.advice)
    refused = {**refused, **advice}
    if told.changed or advice:
        entries = [worded(entry, walk.refused, refused) for entry in entries]
    moments = [entry.until for entry in entries if entry.until is not None]
    if told.wake_at is not None:
        moments.append(told.wake_at)
    if walk.rations.is_short:
        moments.append(now + AGAIN)
    is_same = len(entries) == len(last.entries) and all(map(_is, entries, last.entries))
    return Schedule(
        cluster=cluster,
        booked=walk.cluster,
        scene=walk.first_scene,
        entries=last.entries if is_same else tuple(entries),
        by_key=last.by_key if is_same else {entry.key: entry for entry in entries},
        shapes=last.shapes
        if is_same
        else {shape.request: shape for shape in {entry.shape for entry in entries} if shape},
        giving_way=last.giving_way
        if is_same
        else frozenset(entry.shape for entry in entries if entry.shape and entry.shape.request.gives_way),
        refused={**walk.left, **refused},
        allowances=walk.allowances,
        unread=tuple(walk.unread),
        came_to=walk.rations.came_to,
        renewed_at=told.renewed_at,
        wake_at=min(moments, default=None),
    )


class _Walk:
    """One walk over the queue; `cluster` holds what was booked on it so far."""

    def __init__(self, cluster: Cluster, tables: Tables, memory: Memory, now: datetime) -> None:
        self.last = last = Schedule(cluster, cluster, cluster) if memory.schedule is None else memory.schedule
        self.is_quiet = memory.schedule is not None and is_same_scene(last.cluster, cluster)
        self._given = self.cluster = cluster  # the former without what is booked on the walk
        self.scene = self.first_scene = last.scene if self.is_quiet else cluster
        self.refused: dict[RequestShape, ShapeRefusal] = {}
        self.left: dict[RequestShape, ShapeRefusal] = {}
        """What is known of shapes that were not asked."""
        self.rations = QuestionBudget(last.came_to, are_bounded=memory.is_rationed)
        self._trials = Probation(cluster, memory, now)
        self.is_trial = self._trials.are_under_way()
        """Whether a job is given GPUs that was refused the last time, and is likely to be so again."""
        self._tables = tables
        self._memory = memory
        self._now = now
        self._shapes = dict(last.shapes)
        self._fitting: set[RequestShape] = set()
        """Shapes for which the scene is known to have room."""
        self._patient: dict[Request, Request] = {}
        """What jobs ask -> what they ask while they are patient, which an empty cluster decides."""
        self._crowded: dict[Contender, bool] = {}
        self._are_same_priorities = (
            cluster.priorities is last.cluster.priorities and cluster.default_priority == last.cluster.default_priority
        )
        self._pods_are_same = memory.schedule is not None and cluster.pods is last.cluster.pods
        self._volumes_are_same = memory.schedule is not None and cluster.has_volumes_like(last.cluster)
        self._are_views_same = cluster.nodes is last.cluster.nodes and cluster.claims is last.cluster.claims
        weighed = last.allowances if self._are_same_priorities else NOTHING_WAITS
        is_known = memory.schedule is not None and self._are_same_priorities and cluster.jobs is last.cluster.jobs
        self.allowances = weighed if is_known else allowances(cluster, weighed)
        self._beyond, self._beyond_before = self.allowances.beyond, last.allowances.beyond
        self.unread: list[JobKey] = []

    def entries(self) -> list[QueueEntry]:
        """The verdicts on all jobs, in their order."""
        last, memory = self.last, self._memory
        changed = self._changed()
        if changed is None or memory.put_aside:
            return [self.entry(*each) for each in self.queue()]
        # Hardly anything has changed, as a rule: what stands is passed over at a third of a microsecond each.
        found: list[QueueEntry] = []
        answers_of, pods_of = memory.answers.get, self.cluster.pods_by_job.get
        are_same, now, refused, busy = self._pods_are_same, self._now, self.refused, memory.busy
        volumes_are_same = self._volumes_are_same
        giving_way = last.giving_way
        beyond, before = self._beyond, self._beyond_before
        moved = set() if beyond is before else {key for key in (*beyond, *before) if beyond.get(key) != before.get(key)}
        for known in last.entries:
            key, shape = known.key, known.shape
            if changed and key in changed:
                found.append(self.entry(key, changed[key], known.place, known))
                continue
            is_same_answer = answers_of(known.uid, NOTHING) is known.answers
            if busy and key in busy and is_same_answer and isinstance(known.verdict, Keep) and known.verdict.is_fit:
                pods = known.pods if are_same else pods_of(key, ())
                found.append(known if pods is known.pods else replace(known, pods=pods, is_settled=False))
                continue
            stands = (
                known.is_settled
                and is_same_answer
                and not (moved and key in moved)
                and (known.until is None or now < known.until)
                and (shape not in giving_way or self._is_crowded(known.job))
                and (volumes_are_same or self._has_same_volumes(known))
                and (are_same or (pods := pods_of(key, ())) is known.pods or pods == known.pods)
                and (
                    shape is None
                    or ((answer := refused.get(shape)) is not None and answer.wait is known.verdict)
                    or self._refusal(shape) is known.verdict
                )
            )
            found.append(known if stands else self.entry(key, known.job, known.place, known))
        return found

    def _changed(self) -> dict[JobKey, TrainingJob] | None:
        """Jobs that are not what they were, where the queue has the same order; None where it may not have."""
        jobs, last = self.cluster.jobs, self.last
        if self._memory.schedule is None or not self._are_same_priorities or len(jobs) != len(last.entries):
            return None
        if jobs is last.cluster.jobs:
            return {}
        changed: dict[JobKey, TrainingJob] = {}
        for key, job in jobs.items():
            known = last.by_key.get(key)
            if known is None or (known.job is not job and queue_place(self.cluster, job) != known.place):
                return None
            if known.job is not job:
                changed[key] = job
        return changed

    def queue(self) -> Iterator[tuple[JobKey, TrainingJob, QueuePlace, QueueEntry | None]]:
        """All jobs in their order, each with what is remembered of it."""
        cluster, found = self.cluster, []
        for key, job in cluster.jobs.items():
            known = self.last.by_key.get(key)
            is_known = known is not None and known.job is job and self._are_same_priorities
            found.append(
                (known.place if known is not None and is_known else queue_place(cluster, job), key, job, known)
            )
        found.sort(key=lambda each: each[0])
        return ((key, job, place, known) for place, key, job, known in found)

    def entry(self, key: JobKey, job: TrainingJob, place: QueuePlace, known: QueueEntry | None) -> QueueEntry:
        """The verdict on one job, with what it was asked with."""
        uid = known.uid if known is not None and known.job is job else job.metadata.uid or ""
        answers = self._memory.answers.get(uid, NOTHING)
        pods = known.pods if known is not None and self._pods_are_same else self.cluster.pods_of(key)
        stands = (
            known is not None
            and known.job is job
            and known.place is place
            and known.answers is answers
            and (known.pods is pods or known.pods == pods)
            and (known.until is None or self._now < known.until)
            and not (self._memory.put_aside and key in self._memory.put_aside)
            and (known.shape not in self.last.giving_way or self._is_crowded(job))
            and self._has_same_volumes(known)
            and self._beyond.get(key) == self._beyond_before.get(key)
        )
        if known is not None and stands:
            # What is free for it alone rests on its claims, too, and the size of its Pods on all of their nodes.
            if known.scene is not None and known.scene is self.scene and self._are_views_same:
                return known
            if known.is_settled and (known.shape is None or self._refusal(known.shape) is known.verdict):
                return known
        volumes = known.volumes if known is not None and stands else self.cluster.volumes_of(job)
        kept_out = self._kept_out(key, job)
        found: Outcome | OwnMistake = (
            guarded(self._decided, key, job, place, pods, answers, volumes, known if stands else None)
            if kept_out is None
            else kept_out
        )
        if isinstance(found, OwnMistake):
            found = Outcome(Wait(Refusal(WaitCause.MISTAKE, error=found.error)), is_settled=False)
        if found.verdict is _NOT_ASKED and known is not None and stands and known.is_refused:
            return known  # it depends on the answer to its shape, which is not that of this scene: it is asked again
        if known is not None and stands and found.is_as(known):
            return known
        return QueueEntry(
            key,
            uid,
            job,
            place,
            pods,
            answers,
            found.verdict,
            found.shape,
            found.until,
            found.is_settled,
            found.scene,
            volumes,
        )

    def _kept_out(self, key: JobKey, job: TrainingJob) -> Outcome | None:
        """What becomes of a job whose templates nobody can read now."""
        if (words := self._beyond.get(key)) is not None:
            return Outcome(Wait(Refusal(WaitCause.REFUSED, PendingReason.QUOTA_EXCEEDED, words)))
        if is_whole(job) or not needs_templates(job):
            return None
        self.unread.append(key)
        return Outcome(_NOT_ASKED, is_settled=False)

    def _decided(
        self,
        key: JobKey,
        job: TrainingJob,
        place: QueuePlace,
        pods: tuple[Pod, ...],
        answers: Answers,
        volumes: Volumes,
        known: QueueEntry | None,
    ) -> Outcome:
        """`known` is what is remembered of the job, where that stands but for what the cluster offers."""
        held = self.cluster.booking_of(key)
        is_asked = known is not None and known.shape is not None
        refusal = (
            None if is_asked else gate(job, pods, answers, self.cluster, self._now, volumes, is_booked=held is not None)
        )
        if refusal is not None:
            is_settled = refusal.cause not in {
                WaitCause.LEFTOVERS,
                WaitCause.NUMBER_HELD,
            }  # their nodes may die, and recover
            return Outcome(Wait(refusal), until=refusal.until, is_settled=is_settled)
        if held is not None:
            return self._kept(job, held, pods)
        if key in self._memory.put_aside:
            return Outcome(Wait(Refusal(WaitCause.PUT_ASIDE)), is_settled=False)
        may_be_refused = self._trials.may_be_refused(job, answers)
        away = avoided_nodes(job, self.cluster, self._now)
        patience = patient_until(job, self._now)
        is_kept_whole = patience is not None and job.spec.topology.fabric.preferred is None
        shape = known.shape if known is not None else None
        if shape is None or shape.request.avoided != away.nodes or patience is not None:
            is_patient = patience is not None and not is_kept_whole
            shape = self._shape(job, volumes, away, place, is_patient=is_patient)
        if shape is None:
            return self._not_asked(known.shape if known is not None else None)
        alone = with_own_gpus_free(job, pods, self.cluster).without(away.devices)
        put_off = self._put_off(job, answers, shape, place, alone, is_trial=may_be_refused)
        if put_off is not None:
            return put_off
        answer = self._answer(shape) if alone is self.cluster else self._answer_alone(shape, alone, known)
        if is_kept_whole and isinstance(answer, Placement) and len(answer.shares) > 1:  # only then it is a question
            shape = self._shape(job, volumes, away, place, is_patient=True)
            if shape is None or not self._may_ask(shape, place, alone):
                return self._not_asked(shape)
            answer = self._answer(shape) if alone is self.cluster else self._answer_alone(shape, alone, known)
        if isinstance(answer, Wait):
            if self.is_trial and (may_be_refused or job.status.pending is not None):
                # It would be told so, and otherwise a moment later: two writes with each try of another job.
                return Outcome(_NOT_ASKED, shape, is_settled=False)
            is_waiting = shape.request.patient_level is not None  # whatever it is refused for, now or in newer words
            again = asked_again_at(patience if is_waiting else None, away.until)
            # What is left of it may come to count as free for it alone, on a node that recovers.
            has_left = bool(pods or self.cluster.claims_of(key))
            scene = None if alone is self.cluster else self.scene
            return Outcome(answer, shape, until=again, is_settled=not (has_left or away.until), scene=scene)
        answer = self._in_one(shape.request, answer, volumes.choices, alone)
        if (refusal := self._trials.refusal(job, answers, is_trial=may_be_refused)) is not None:
            self._fitting |= {shape} if alone is self.cluster else set()
            return Outcome(Wait(refusal), shape, until=refusal.until, is_settled=False)
        again = asked_again_at(patience, away.until)
        if (cannot := self._cannot_be_made(job, volumes, answer, shape, again)) is not None:
            return cannot
        self.scene = self.cluster = self.cluster.with_job(assumed(job, answer))
        self._fitting.clear()
        self.is_trial = self.is_trial or may_be_refused
        return Outcome(Book(answer), shape, is_settled=False)

    def _in_one(self, asked: Request, answer: Placement, choices: Sequence[NodeAffinity], alone: Cluster) -> Placement:
        """The placement, or where its nodes could not all have the same volume one whose nodes can, if there is any."""
        views = [alone.nodes[share.node] for share in answer.shares]
        if (
            not choices
            or len(views) == 1
            or any(all(meets(view.name, view.labels, choice) for view in views) for choice in choices)
        ):
            return answer
        for choice in choices:
            inside = replace(asked, volumes=asked.volumes | {choice})
            found = place(alone, inside, self._tables) if can_place(alone, inside, self._tables) else None
            if isinstance(found, Placement):
                return found
        return answer

    def _put_off(
        self,
        job: TrainingJob,
        answers: Answers,
        shape: RequestShape,
        place: QueuePlace,
        alone: Cluster,
        *,
        is_trial: bool,
    ) -> Outcome | None:
        """What becomes of a job that placement is not asked about. Of one that would only be tried, it is not where
        there is room, as for others that ask alike, or where the ration is used up and it was told nothing yet."""
        may_be_asked, is_fitting = self._may_ask(shape, place, alone), shape in self._fitting
        if alone is self.cluster and (is_fitting or not (may_be_asked or job.status.pending)):
            refusal = self._trials.refusal(job, answers, is_trial=is_trial)
            if refusal is not None and (is_fitting or refusal.reason is not None):
                return Outcome(Wait(refusal), shape, until=refusal.until, is_settled=False)
        return None if may_be_asked else self._not_asked(shape)

    def _cannot_be_made(
        self, job: TrainingJob, volumes: Volumes, placement: Placement, shape: RequestShape, again: datetime | None
    ) -> Outcome | None:
        """What keeps a gang that fits from being made or from starting; None where nothing is known to. `again` is when
        it may ask for something else."""
        holder = taken(job, job.status.attempt or 1, len(placement.shares), self.cluster)
        if holder is not None:
            words = taken_words(f"{holder.kind} {job.key.namespace}/{holder.name}", holder.owner)
            refusal = Refusal(WaitCause.REFUSED, PendingReason.NAME_CONFLICT, words)
            return Outcome(Wait(refusal), shape, is_settled=False)
        if (too_much := too_large(job, placement, self.cluster)) is not None:
            refusal = Refusal(WaitCause.REFUSED, PendingReason.NOT_SUPPORTED, too_much)
        elif (lacking := too_many(job, placement, volumes)) is not None:
            refusal = Refusal(WaitCause.REFUSED, PendingReason.VOLUME_UNAVAILABLE, lacking)
        else:
            return None
        return Outcome(Wait(refusal), shape, until=again, is_settled=False, scene=self.scene)

    def _kept(self, job: TrainingJob, held: Booking, pods: tuple[Pod, ...]) -> Outcome:
        if job.key in self._memory.busy:  # its Pods may come one by one, and nothing is done about them yet
            return Outcome(Keep(held), is_settled=False)
        uid, attempt = job.metadata.uid, held.attempt
        there = {
            held.position(child)
            for pod in pods
            if pod.deletion_timestamp is None
            and (child := pod.child) is not None
            and child.attempt == attempt
            and uid in pod.job_uids
        }
        if all(index in there or share.succeeded for index, share in enumerate(held.shares)):
            return Outcome(Keep(held))
        return Outcome(Keep(held, is_fit_again(job, held, self.cluster, self._now)), is_settled=False)

    def _shape(
        self, job: TrainingJob, volumes: Volumes, away: AvoidedNodes, place: QueuePlace, *, is_patient: bool
    ) -> RequestShape | None:
        """What the job asks. Whether patience gains it anything is a question of its own, within the ration: None where
        that is not asked now."""
        asked: Request = replace(request(NOBODY, job.spec, volumes.required), avoided=away.nodes)
        if is_patient:
            if asked not in self._patient:
                if not self.rations.take(place, 1 + self._steps_of_selection(self.cluster, asked)):
                    return None
                self._patient[asked] = patient(asked, self.cluster, self._tables) or asked
            waiting = self._patient[asked]
            if not waiting.gives_way or self._is_crowded(job):
                asked = waiting
        return self._shapes.setdefault(asked, RequestShape(asked))

    def _has_same_volumes(self, known: QueueEntry) -> bool:
        """Whether the volumes of a job that has not changed come to what they did; a job without any costs nothing."""
        if self._volumes_are_same or known.volumes is NO_VOLUMES:
            return True
        return self.cluster.volumes_stand(known.volumes) or self.cluster.volumes_of(known.job) == known.volumes

    @cached_property
    def _backlog(self) -> Backlog:
        return backlog(self._given)

    def _is_crowded(self, job: TrainingJob) -> bool:
        """Whether so many wait that would gain by it that a job which is too large for what it prefers gives way."""
        gang = contender(self._given, job)
        known = self._crowded.get(gang)
        if known is None:
            known = self._crowded[gang] = self._backlog.is_crowded(gang)
        return known

    def _not_asked(self, shape: RequestShape | None) -> Outcome:
        """The ration is used up; what was said of the shape before is kept."""
        if shape is not None and (before := self.last.refused.get(shape)) is not None:
            self.left[shape] = before
        return Outcome(_NOT_ASKED, shape, is_settled=False)

    def _steps_of_selection(self, cluster: Cluster, asked: Request) -> int:
        """What it costs to look for the nodes that are selected, where they are not at hand."""
        return (
            0
            if self._tables.knows_selection(cluster, asked)
            else steps_of_selection(len(cluster.nodes), asked.requirements)
        )

    def _may_ask(self, shape: RequestShape, place: QueuePlace, alone: Cluster) -> bool:
        """Whether the shape is known, or may be asked on this cluster within the ration of the job's namespace."""
        is_alone, nodes, asked = alone is not self.cluster, len(alone.nodes), shape.request
        if not is_alone and (shape in self._fitting or self._refusal(shape) is not None):
            return True
        before = self.last.refused.get(shape)
        steps = 1 if before is not None and not is_alone else steps_of_words(nodes)
        steps += self._steps_of_selection(alone, asked)
        return self.rations.take(place, steps)

    def _refusal(self, shape: RequestShape) -> Wait | None:
        """The refusal of the shape that is known to stand; None where it is to be asked."""
        found = self.refused.get(shape)
        if found is None:
            found = self.last.refused.get(shape)
            if found is None or found.scene is not self.scene:
                return None
            self.refused[shape] = found
        return found.wait

    def _answer(self, shape: RequestShape) -> Placement | Wait:
        """What the shape gets now. Whether it fits costs little, the words of its refusal much: they are kept."""
        if (known := self._refusal(shape)) is not None:
            return known
        before = self.last.refused.get(shape)
        if before is not None and not can_place(self.cluster, shape.request, self._tables):
            self.refused[shape] = ShapeRefusal(self.scene, before.told_of, before.wait)
            return before.wait
        answer = place(self.cluster, shape.request, self._tables)
        if isinstance(answer, Placement):
            return answer
        self.refused[shape] = found = ShapeRefusal(self.scene, self.scene, wait_for(answer))
        return found.wait

    def _answer_alone(self, shape: RequestShape, alone: Cluster, known: QueueEntry | None) -> Placement | Wait:
        """What the shape gets where the own Pods of one job count as gone.

        On a large cluster the words of a refusal are kept while it stays one: such Pods are gone soon.
        """
        is_known = known is not None and known.scene is not None and known.shape is shape and known.is_refused
        is_large = len(alone.nodes) > MANY_NODES
        last = known.verdict if known is not None and is_known and is_large else None
        if isinstance(last, Wait) and not can_place(alone, shape.request, self._tables):
            return last
        answer = place(alone, shape.request, self._tables)
        return answer if isinstance(answer, Placement) else wait_for(answer)


def _is(one: object, other: object) -> bool:
    return one is other
