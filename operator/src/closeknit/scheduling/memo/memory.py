"""The process's knowledge besides the Cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from closeknit.api.names import JobKey
from closeknit.lifecycle.writes.answers import Answers
from closeknit.scheduling.memo.advice import Advice
from closeknit.scheduling.memo.follow_inputs import FollowInputs
from closeknit.scheduling.memo.message_rate import ToldWords
from closeknit.scheduling.queue.entries import QueueEntry, RequestShape, Schedule


@dataclass(frozen=True, slots=True)
class Memory:
    """What it has of the last decision (`schedule`, `followed`, `advice`) saves time and changes no verdict."""

    answers: Mapping[str, Answers] = field(default_factory=dict)
    """By the job's uid."""
    busy: frozenset[JobKey] = frozenset()
    """Jobs whose last Plan is still being written, or not yet seen in the Cluster: they get no Plan, and keep their
    turn."""
    put_aside: frozenset[JobKey] = frozenset()
    """Jobs of `busy` that lost their turn, because their obstacle may last: they get nothing new."""
    epoch: int = 1
    """Of this leader; written with every booking."""
    schedule: Schedule | None = None
    """The last one."""
    is_rationed: bool = True
    """Whether the jobs of one namespace share a ration of questions; not for a single answer."""
    advice: Mapping[RequestShape, Advice] = field(default_factory=dict)
    """Nearest changes of waiting jobs."""
    followed: Mapping[QueueEntry, FollowInputs] = field(default_factory=dict)
    """Jobs without a write, or with a later message, and the inputs of that result."""
    told: tuple[ToldWords, ...] = ()
    """Messages of jobs within the last minute."""
