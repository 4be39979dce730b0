"""An elastic job whose growth in place the API server refuses, after it was booked, goes back to what it had."""

from dataclasses import replace

from closeknit.api.names import ChildName
from closeknit.cluster.booking.booking import Booking
from closeknit.lifecycle.attempt.own_pods import is_own
from closeknit.lifecycle.failures.refused_growth import RefusedGrowth, refused_growth
from closeknit.lifecycle.verdict import Keep
from closeknit.placement.values.placement import Placement
from closeknit.scheduling.policy.policy_context import Walk
from closeknit.scheduling.queue.entries import Case, Outcome
from closeknit.scheduling.queue.room import Room


def taken_back(case: Case, room: Room, walk: Walk) -> Outcome | None:
    """The verdict on such a job: it keeps its booking until the one of before is stored."""
    booking = room.cluster.booking_of(case.key)
    if booking is None or case.answers.refused_change is None or case.key in walk.memory.busy:
        return None
    of = ((pod, pod.child) for pod in case.pods if is_own(pod, case.job))
    first = next((pod for pod, child in of if child is not None and _is_first(booking, child)), None)
    refused = refused_growth(case.job, booking, first, case.answers)
    if refused is None:
        return None
    return Outcome(Keep(booking, before=_before(case, refused, room, walk)), is_settled=False)


def _is_first(booking: Booking, child: ChildName) -> bool:
    return child.attempt == booking.attempt and booking.position(child) == 0


def _before(case: Case, refused: RefusedGrowth, room: Room, walk: Walk) -> Placement | None:
    """Its placement before that growth; None where a node of it is not told of now."""
    views = (room.cluster.nodes.get(share.node) for share in refused.shares)
    if any(view is None or view.machine is None for view in views):
        return None
    gpus = sum(len(share.gpus) for share in refused.shares)
    asked = replace(walk.questions.request(case), gpus=gpus)
    return walk.questions.current_placement(asked, refused.shares, room.cluster)
