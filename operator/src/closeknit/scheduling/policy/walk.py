"""What a policy is handed beside the job and the room, and what it is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from closeknit.api.names import JobKey
from closeknit.cluster.cluster import Cluster
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.memo.questions import Questions
from closeknit.scheduling.policy.crowd import Crowd
from closeknit.scheduling.policy.patience import Patience
from closeknit.scheduling.policy.probation import Probation
from closeknit.scheduling.queue.entries import Case, Outcome
from closeknit.scheduling.queue.room import Room


@dataclass(frozen=True, slots=True)
class Walk:
    """What is the same for all jobs of one walk over the queue."""

    cluster: Cluster
    """As it was given: without what this walk books or frees."""
    memory: Memory
    now: datetime
    questions: Questions
    patience: Patience
    probation: Probation
    crowd: Crowd
    beyond: Mapping[JobKey, str]
    """Jobs whose templates are not to be kept, with what is told of it."""


Policy = Callable[[Case, Room, Walk], Outcome | None]
"""The verdict on one job, with the room after it where that is another; None where the next policy has the word."""
