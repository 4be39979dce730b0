"""A growth in place whose new Pods the API server refuses: it is taken back, and the gang trains on as it is.

That holds as long as node rank 0's Pod tells the size of before: it is told the larger one once all new Pods are
there, and the gang never has a smaller one again in its Pods. So what is to be taken back follows from what is stored;
only the refusal is in memory, and an operator that has lost it asks again.
"""

from dataclasses import dataclass

from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import EndReason
from closeknit.cluster.booking.booking import Booking, BookingShare
from closeknit.cluster.pods.pod import Pod
from closeknit.lifecycle.writes.answers import Answers


@dataclass(frozen=True, slots=True)
class RefusedGrowth:
    """What is to be taken back."""

    shares: tuple[BookingShare, ...]
    """Those of before: the first ones, with ranks that train."""
    message: str
    """Why the API server refuses the rest."""


def refused_growth(job: TrainingJob, held: Booking, first: Pod | None, answers: Answers) -> RefusedGrowth | None:
    """The growth of this booking that the API server has refused; None without one. `first` is node rank 0's Pod."""
    begun, refused = growth_begun(job), answers.refused_change
    if not begun or refused is None or refused.growth != begun or refused.generation != job.metadata.generation:
        return None
    shares = shares_before(job, held, first)
    return RefusedGrowth(shares, refused.message) if shares else None


def growth_begun(job: TrainingJob) -> str:
    """When the growth was booked whose new Pods the gang waits for, as its status tells; empty without one."""
    placement, last = job.status.placement, next(reversed(job.status.attempts), None)
    is_growing = placement is not None and placement.swapping and last is not None and last.reason == EndReason.GROWN
    return last.ended if is_growing and last is not None else ""


def shares_before(job: TrainingJob, held: Booking, first: Pod | None) -> tuple[BookingShare, ...]:
    """The shares that a gang which grows had before, while its Pods were told of no more; else none."""
    told = "" if first is None else first.size.partition(" ")[0]
    before = held.shares[: int(told)] if growth_begun(job) and told.isdecimal() else ()
    is_as_before = first is not None and first.size == size_of(before) and len(before) < held.workers
    return before if before and is_as_before else ()


def size_of(shares: tuple[BookingShare, ...]) -> str:
    """The size of a gang of these workers, as its Pods are told it."""
    return f"{len(shares)} {sum(len(share.gpus) for share in shares)}"
