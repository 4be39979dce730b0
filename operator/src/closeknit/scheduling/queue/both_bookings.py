"""A job that changes its booking, for the decisions about others until the new one is stored."""

from collections.abc import Sequence

from closeknit.api.objects import TrainingJob
from closeknit.cluster.booking.booking import AwaitedAttempt, Booking, until_stored
from closeknit.lifecycle.booking.booked_placement import assumed
from closeknit.placement.values.placement import Placement


def holding_both(
    job: TrainingJob, found: Placement, held: Booking, awaited: Sequence[AwaitedAttempt] = ()
) -> TrainingJob:
    """The job for the decisions about others: it holds what it is to have, once these have made room, and until that is
    stored what it has."""
    after = assumed(job, found, awaited)
    placement = after.status.placement
    assert placement is not None  # noqa: S101 - it is assumed to have one, for the type checker
    update = {"placement": until_stored(placement, held)}
    return after.model_copy(update={"status": after.status.model_copy(update=update)})
