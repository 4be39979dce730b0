"""The result for one job in one decision over all of them."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from closeknit.api.names import JobKey
from closeknit.api.reasons import PendingReason
from closeknit.cluster.booking.booking import AwaitedAttempt, Booking, BookingShare
from closeknit.placement.values.placement import Placement


class WaitCause(StrEnum):
    """Why a job gets nothing."""

    BEING_DELETED = "BeingDeleted"
    OVER = "Over"  # succeeded or failed
    SUSPENDED = "Suspended"
    LEFTOVERS = "Leftovers"  # Pods of its own have names that the next attempt needs
    NUMBER_HELD = "NumberHeld"  # such Pods may never go, or it has ended: the next attempt gets the number after
    PAUSE = "Pause"  # between attempts
    NO_FIT = "NoFit"  # placement has no room for it
    REFUSED = "Refused"  # for another reason that its status tells
    PUT_ASIDE = "PutAside"  # what stopped its last write may last
    NOT_ASKED = "NotAsked"  # another decision has its turn, and nothing is known of it yet
    MISTAKE = "Mistake"  # of ours: nothing is decided on the job


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a job gets nothing, and until when only a change can alter that."""

    cause: WaitCause
    reason: PendingReason | None = None
    """For WaitCause.NO_FIT and WaitCause.REFUSED, like the message."""
    message: str = ""
    nearest: tuple[str, ...] | None = None
    """The nearest changes; None where they are not known yet, so that the written ones stay."""
    until: datetime | None = None
    """When to ask again though nothing has changed."""
    error: Exception | None = None
    """For WaitCause.MISTAKE."""

    @property
    def ends(self) -> bool:
        """Whether it ends with the job's patience: it would fit without the level that it prefers."""
        return self.reason is PendingReason.WAITING_FOR_PREFERRED


@dataclass(frozen=True, slots=True)
class Keep:
    """It holds GPUs and goes on holding them."""

    booking: Booking
    is_fit: bool = True
    """Whether another attempt could get the same GPUs; checked only where one of its Pods is missing, going or failed.
    """
    room: int | None = None
    """Of a job that holds fewer GPUs than it asks for: the size that there is room for now, 0 for none, where its
    status says otherwise; None where nothing is to be said."""
    refused: str | None = None
    """Why the API server refuses it at that size, where its status does not say so yet."""
    before: Placement | None = None
    """Its placement before a growth that is to be taken back; None of any other, and where it cannot be told."""


@dataclass(frozen=True, slots=True)
class Book:
    """It gets these GPUs."""

    placement: Placement
    why: str = ""
    """Why it leaves those that it has; empty of one that has none."""


@dataclass(frozen=True, slots=True)
class Hold:
    """It waits for other nodes in place of lost ones, and holds the rest meanwhile: nobody else gets it."""

    shares: tuple[BookingShare, ...]
    """Those of the whole gang, in their order, with lost ones among them."""
    message: str = ""
    """What it waits for; empty while it only waits whether it loses more."""


@dataclass(frozen=True, slots=True)
class Await:
    """Jobs of lower priority make room for it. It holds what they leave, and gets Pods once theirs are gone."""

    awaits: tuple[AwaitedAttempt, ...]
    message: str
    placement: Placement | None = None
    """What it is to have; None for what it holds already."""


@dataclass(frozen=True, slots=True)
class Evict:
    """It makes room for a job of higher priority: its attempt ends."""

    booking: Booking
    by: JobKey
    is_recalled: bool = False
    """Whether it is on spare nodes of that job or of its queue, which it needs now."""


@dataclass(frozen=True, slots=True)
class EvictByKueue:
    """Kueue takes its quota back: its attempt ends."""

    booking: Booking
    message: str


@dataclass(frozen=True, slots=True)
class Grow:
    """It gets more GPUs: its attempt ends, and the next one has these."""

    booking: Booking
    placement: Placement


@dataclass(frozen=True, slots=True)
class Shrink:
    """It gives some of its GPUs to a job of higher priority: its attempt ends, and the next one has these."""

    booking: Booking
    placement: Placement
    by: JobKey


@dataclass(frozen=True, slots=True)
class Relocate:
    """It goes on with other GPUs, as many: its attempt ends, so that a gang has room that waits."""

    booking: Booking
    placement: Placement
    by: JobKey
    gpus: int
    """Of that gang."""


@dataclass(frozen=True, slots=True)
class Wait:
    """It holds nothing, or must give up what it holds."""

    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Reservation:
    """Room that is kept for the first job that waits for some: a later job may not delay it."""

    job: JobKey
    at: datetime | None
    """When the job is expected to start, a full minute, with time for what declarations are off by. None where nothing
    says when, and the job has waited long."""
    soonest: datetime | None
    """When it starts if all end as they declare: a job that ends before passes. None likewise."""
    placement: Placement
    awaits: tuple[JobKey, ...]
    """Jobs that hold some of it until then, in the order of their ends."""
    late: tuple[JobKey, ...] = ()
    """Those of them that run longer than they declared."""
    over: frozenset[JobKey] = field(default=frozenset(), repr=False)
    """All jobs that have ended by then, thousands maybe: who passes rests on what they leave, wherever that is."""
    patient_level: str | None = None
    """The level that its job waits for with patience and has then; who passes leaves it that."""

    def lets_pass_no_more_than(self, other: "Reservation") -> bool:
        """Whether who waits behind the other one waits behind this one, too, and is told the same: it is the same, or
        fewer of those that are nothing to it will have ended."""
        return self is other or (self.over <= other.over and replace(other, over=self.over) == self)


@dataclass(frozen=True, slots=True)
class Reserve(Wait):
    """It waits for room, and this is kept for it."""

    reservation: Reservation


Verdict = Keep | Book | Hold | Await | Evict | EvictByKueue | Grow | Shrink | Relocate | Wait | Reserve
"""What `schedule` says of a job, and `follow` brings its objects to."""
