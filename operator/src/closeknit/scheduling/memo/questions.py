"""Questions to placement on one walk: once per shape and room, within the namespace's budget."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from closeknit.cluster.booking.booking import BookingShare
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.objects.pod_requests import Needs
from closeknit.lifecycle.verdict import Wait
from closeknit.placement.current_placement import current_placement
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place, place
from closeknit.placement.refusals.ideal import could_place
from closeknit.placement.refusals.refusal import unknown
from closeknit.placement.replacement_nodes import Replacement, replacement
from closeknit.placement.values.placement import NoFit, Placement
from closeknit.placement.values.request import Request
from closeknit.scheduling.memo.question_budget import QuestionBudget, steps_of_selection, steps_of_words
from closeknit.scheduling.memo.refusal_words import wait_for
from closeknit.scheduling.queue.admitted_needs import counts_until, with_admitted
from closeknit.scheduling.queue.entries import (
    NOT_ASKED,
    Case,
    Outcome,
    QueuePlace,
    RequestShape,
    Schedule,
    ShapeRefusal,
)
from closeknit.scheduling.queue.room import Room

MANY_NODES = 512  # the words of a refusal on so many take a few milliseconds


class Questions:
    """Placement's answers to this walk and to the last one.

    Invariant: a refusal is used again only in a Room where placement would give it again: one of its `scene`, or on
    this walk one of its `freed`.
    """

    def __init__(self, last: Schedule, tables: Tables, budget: QuestionBudget, now: datetime) -> None:
        self._now = now
        self.last = last
        """The last decision."""
        self.refused: dict[RequestShape, ShapeRefusal] = {}
        """Of this walk."""
        self.left: dict[RequestShape, ShapeRefusal] = {}
        """What is known of shapes that were not asked."""
        self.budget = budget
        self._tables = tables
        self._shapes = dict(last.shapes)
        self._fits: dict[RequestShape, Cluster] = {}
        self._placed: dict[RequestShape, tuple[Cluster, Placement]] = {}
        """The last placement of each shape on this walk, and the cluster that it is of."""

    def request(self, case: Case) -> Request:
        """The job's request, as many jobs share it; of one that could not start with what admission adds."""
        asked = self._tables.request(case.job.spec, case.volumes.required)
        if not case.job.status.attempts or counts_until(case, self._now) is None:
            return asked
        return replace(asked, needs=with_admitted(asked.needs, case, self._now))

    def needs_as_admitted(self, case: Case) -> Needs:
        """What its worker needs of a node where others are to go for it."""
        needs = self._tables.request(case.job.spec, case.volumes.required).needs
        counts = case.job.status.attempts and counts_until(case, self._now, in_free_room=False) is not None
        return with_admitted(needs, case, self._now) if counts else needs

    def shape(self, asked: Request) -> RequestShape:
        """The one object for all jobs with this request."""
        return self._shapes.setdefault(asked, RequestShape(asked))

    def refusal(self, shape: RequestShape, room: Room) -> Wait | None:
        """The known refusal of the shape in this room; None where it must be asked."""
        found = self.refused.get(shape)
        if found is not None and found.freed is room.freed:
            return found.wait
        before = self.last.refused.get(shape)
        if before is None or before.scene is not room.scene:
            return None
        self.refused[shape] = ShapeRefusal(room.scene, room.freed, before.told_of, before.wait)
        return before.wait

    def fits(self, shape: RequestShape, room: Room) -> bool:
        """Whether the shape is known to fit into this room: another job found that and did not take it."""
        return self._fits.get(shape) is room.scene

    def left_free(self, shape: RequestShape, room: Room) -> None:
        """The shape fits into this room, and its job does not take it."""
        self._fits[shape] = room.scene

    def take_selection(self, asked: Request, place: QueuePlace, cluster: Cluster) -> bool:
        """Whether the budget allows one question of an empty cluster."""
        return self.budget.take(place, 1 + self._steps_of_selection(cluster, asked))

    def take_question(self, shape: RequestShape, place: QueuePlace, room: Room, alone: Cluster) -> bool:
        """Whether the shape is known, or may be asked on the cluster `alone` within the budget of the job's
        namespace."""
        is_alone = alone is not room.cluster
        if not is_alone and (self.fits(shape, room) or self.refusal(shape, room) is not None):
            return True
        return self.budget.take(place, 1 + self._steps_of_selection(alone, shape.request))

    def take_more(self, place: QueuePlace) -> bool:
        """Whether the budget allows a job two more questions: where else it fits, and whether another still would."""
        return self.budget.take(place, 2)

    def not_asked(self, shape: RequestShape | None) -> Outcome:
        """The outcome without budget; the earlier message of the shape stays."""
        if shape is not None and (before := self.last.refused.get(shape)) is not None:
            self.left[shape] = before
        return Outcome(NOT_ASKED, shape, is_settled=False)

    def answer(self, shape: RequestShape, room: Room, at: QueuePlace) -> Placement | Wait:
        """The shape's placement or refusal now, asked by the job of this place. The fit is cheap, the message of a
        refusal dear: it is kept."""
        if (known := self.refusal(shape, room)) is not None:
            return known
        before = self.last.refused.get(shape)
        if before is not None and not can_place(room.cluster, shape.request, self._tables):
            self.refused[shape] = ShapeRefusal(room.scene, room.freed, before.told_of, before.wait)
            return before.wait
        if (placed := self._placed.get(shape)) is not None and placed[0] is room.cluster:
            return placed[1]
        answer = self._in_words(shape.request, room.cluster, at)
        if isinstance(answer, Placement):
            self._placed[shape] = room.cluster, answer
            return answer
        self.refused[shape] = found = ShapeRefusal(room.scene, room.freed, room.scene, wait_for(answer))
        return found.wait

    def answer_alone(self, shape: RequestShape, alone: Cluster, case: Case) -> Placement | Wait:
        """The answer for the shape if the own Pods of one job count as gone.

        On a large cluster the words of a refusal are kept while it stays one: such Pods are gone soon.
        """
        known = case.known
        if known is not None and isinstance(known.verdict, Wait) and len(alone.nodes) > MANY_NODES:
            is_known = known.scene is not None and known.shape is shape and known.is_refused
            if is_known and not can_place(alone, shape.request, self._tables):
                return Wait(known.verdict.refusal)  # without a reservation, which another may have now
        answer = self._in_words(shape.request, alone, case.place)
        return answer if isinstance(answer, Placement) else wait_for(answer)

    def _in_words(self, asked: Request, cluster: Cluster, at: QueuePlace) -> Placement | NoFit:
        """Placement's answer; the budget pays for the words of a refusal."""
        before = self._tables.counted_nodes
        answer = place(cluster, asked, self._tables)
        if isinstance(answer, NoFit):
            self.budget.spend(at, steps_of_words(len(cluster.nodes), self._tables.counted_nodes - before))
        return answer

    def placed(self, asked: Request, cluster: Cluster) -> Placement | None:
        """The placement of this request, outside of the budget; None where it does not fit."""
        found = place(cluster, asked, self._tables) if can_place(cluster, asked, self._tables) else None
        return found if isinstance(found, Placement) else None

    def can_place(self, asked: Request, cluster: Cluster) -> bool:
        """Whether this request fits, outside of the budget."""
        return can_place(cluster, asked, self._tables)

    def could_place(self, asked: Request, cluster: Cluster) -> bool:
        """Whether this request fits into an empty, healthy copy of the cluster, outside of the budget."""
        return unknown(cluster, asked) is None and could_place(cluster, asked, self._tables)

    def replaced(self, asked: Request, shares: Sequence[BookingShare], cluster: Cluster) -> Replacement:
        """What there is in place of the lost shares of a gang, outside of the budget."""
        return replacement(cluster, asked, shares, self._tables)

    def current_placement(self, asked: Request, shares: Sequence[BookingShare], cluster: Cluster) -> Placement:
        """The placement of a gang on the nodes that it has, outside of the budget."""
        return current_placement(cluster, asked, shares, self._tables)

    def _steps_of_selection(self, cluster: Cluster, asked: Request) -> int:
        """Cost of a search for the selected nodes, where they are not at hand."""
        if self._tables.knows_selection(cluster, asked):
            return 0
        return steps_of_selection(len(cluster.nodes), asked.requirements)
