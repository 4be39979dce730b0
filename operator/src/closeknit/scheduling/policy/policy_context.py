"""What a policy is, and what it is given beside the job and the room."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from closeknit.api.names import JobKey
from closeknit.cluster.cluster import Cluster
from closeknit.scheduling.elastic.growth_limit import GrowthLimit
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.memo.questions import Questions
from closeknit.scheduling.policy.backlog import Crowd
from closeknit.scheduling.policy.lemons_last import LemonsLast
from closeknit.scheduling.policy.probation import Probation
from closeknit.scheduling.queue.entries import Case, Outcome
from closeknit.scheduling.queue.queue_reservation import QueueReservation
from closeknit.scheduling.queue.room import Room
from closeknit.scheduling.reservation.patience import Patience
from closeknit.scheduling.victims.move_limit import MoveLimit
from closeknit.scheduling.victims.preemption_state import Preemptions


@dataclass(frozen=True, slots=True)
class Walk:
    """The common inputs of all jobs on one walk over the queue."""

    cluster: Cluster
    """As given: without this walk's bookings and releases."""
    memory: Memory
    now: datetime
    questions: Questions
    patience: Patience
    probation: Probation
    crowd: Crowd
    lemons: LemonsLast
    preemptions: Preemptions
    reserving: QueueReservation
    growth: GrowthLimit
    moves: MoveLimit
    beyond: Mapping[JobKey, str]
    """Jobs whose templates are not kept, with the message."""


Policy = Callable[[Case, Room, Walk], Outcome | None]
"""The verdict on one job, with the room after it if it differs; None for the next policy to decide."""
