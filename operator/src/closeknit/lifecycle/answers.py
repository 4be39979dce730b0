"""What the API server answered to the writes for one job, as far as the next decision needs it.

Answers are held in the process's memory only and are never the truth: after a restart they are empty, the same things
are asked again, and the same is decided.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from closeknit.api.names import JobKey, PendingReason
from closeknit.launch.gang import Manifest

# Pauses before a refused write is tried again. A name is freed by whoever holds it, a policy or a quota is changed by
# an admin, and nobody tells us: so ask again, soon at first, then at the pace of people.
_FIRST_PAUSE_S = {PendingReason.NAME_CONFLICT: 2, PendingReason.TEMPLATE_INVALID: 15}
_LONGEST_PAUSE_S = {PendingReason.NAME_CONFLICT: 60, PendingReason.TEMPLATE_INVALID: 300}


class Refused(StrEnum):
    """Which write was refused."""

    PROBE = "Probe"  # nothing was stored
    CHILD = "Child"  # the booking is stored, and other children may be


@dataclass(frozen=True, slots=True)
class Refusal:
    """A create that the API server refused for good: until somebody changes something."""

    reason: PendingReason  # NameConflict or TemplateInvalid
    message: str
    refused: Refused
    manifest: Manifest  # what was refused
    generation: int  # of the job then; another one is asked about anew
    attempt: int
    at: datetime
    tries: int  # refusals in a row, this one included

    @property
    def retry_at(self) -> datetime:
        """When to try again: the pause doubles with each refusal in a row."""
        pause_s = min(_LONGEST_PAUSE_S[self.reason], _FIRST_PAUSE_S[self.reason] * 2 ** min(self.tries - 1, 16))
        return self.at + timedelta(seconds=pause_s)


@dataclass(frozen=True, slots=True)
class Answers:
    """What is remembered of one job. Attempt numbers; 0 for none."""

    refusal: Refusal | None = None
    """The newest refusal, until a booking is stored after it."""
    refusals: int = 0
    """Refusals in a row; a released gang starts anew."""
    service_of: int = 0
    """The attempt whose Service is known to exist, and the one before to be gone."""
    released: int = 0
    """The attempt of which at least one Pod was released."""
    released_at: datetime | None = None
    """When its last Pod was."""
    ipc_lock_refused: bool = False
    """Whether the namespace's policy does not admit IPC_LOCK."""


NOTHING = Answers()


@dataclass(frozen=True, slots=True)
class Memory:
    """What the process knows besides the Cluster."""

    answers: Mapping[str, Answers] = field(default_factory=dict)
    """By the job's uid."""
    busy: frozenset[JobKey] = frozenset()
    """Jobs whose last Plan is still being written, or not yet seen in the Cluster: they are left alone."""
    epoch: int = 1
    """Of this leader; written with every booking."""
