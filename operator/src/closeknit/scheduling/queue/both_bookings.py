"""A job that changes its booking, for the decisions about others until the new one is stored."""

from closeknit.api.objects import TrainingJob
from closeknit.cluster.booking.booking import Booking, until_stored
from closeknit.lifecycle.book_gang import assumed
from closeknit.placement.values.placement import Placement


def holding_both(job: TrainingJob, found: Placement, held: Booking) -> TrainingJob:
    """The job for the decisions about others: it holds what it is to have, and until that is stored what it has."""
    after = assumed(job, found)
    placement = after.status.placement
    assert placement is not None  # noqa: S101 - it is assumed to have one, for the type checker
    update = {"placement": until_stored(placement, held)}
    return after.model_copy(update={"status": after.status.model_copy(update=update)})
