"""What the API server answered to the writes for one job, as far as the next decision needs it.

Answers are held in the process's memory only and are never the truth: after a restart they are empty, the same things
are asked again, and the same is decided. `after` is the one place that learns.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from closeknit.api.names import PendingReason, service_name
from closeknit.launch.gang import Manifest
from closeknit.lifecycle.children import owner_of
from closeknit.lifecycle.plan import Delete, Plan
from closeknit.lifecycle.results import (
    Created,
    Deleted,
    Exists,
    Failed,
    Failure,
    Judgement,
    Refused,
    Released,
    Result,
    Stored,
    judged,
)

# Pauses before a refused write is tried again. A name is freed by whoever holds it, a policy or a quota is changed by
# an admin, and nobody tells us: so ask again, soon at first, then at the pace of people.
_FIRST_PAUSE_S = {PendingReason.NAME_CONFLICT: 2, PendingReason.TEMPLATE_INVALID: 15}
_LONGEST_PAUSE_S = {PendingReason.NAME_CONFLICT: 60, PendingReason.TEMPLATE_INVALID: 300}


class Refusing(StrEnum):
    """Which write was refused."""

    PROBE = "Probe"  # nothing was stored
    CHILD = "Child"  # the booking is stored, and other children may be


@dataclass(frozen=True, slots=True)
class Rejection:
    """A create that the API server refused for good: until somebody changes something."""

    reason: PendingReason  # NameConflict or TemplateInvalid
    message: str
    of: Refusing
    manifest: Manifest  # what was refused
    generation: int  # of the job then; another one is asked about anew
    attempt: int
    at: datetime
    tries: int  # rejections in a row, this one included

    @property
    def retry_at(self) -> datetime:
        """When to try again: the pause doubles with each rejection in a row."""
        pause_s = min(_LONGEST_PAUSE_S[self.reason], _FIRST_PAUSE_S[self.reason] * 2 ** min(self.tries - 1, 16))
        return self.at + timedelta(seconds=pause_s)


@dataclass(frozen=True, slots=True)
class Answers:
    """What is remembered of one job. Attempt numbers; 0 for none."""

    rejection: Rejection | None = None
    """The newest one, until a booking is stored after it."""
    rejections: int = 0
    """Rejections in a row; a released gang starts anew."""
    service_of: int = 0
    """The attempt whose Service is known to exist, and the one before to be gone."""
    released: int = 0
    """The attempt of which at least one Pod was released."""
    released_at: datetime | None = None
    """When its last Pod was."""
    ipc_lock_refused: bool = False
    """Whether the namespace's policy does not admit IPC_LOCK."""
    told_at: datetime | None = None
    """When its status was last told why it waits."""


NOTHING = Answers()


def after(answers: Answers, plan: Plan, results: Sequence[Result], now: datetime) -> Answers:
    """What is known after these results of the Plan's writes. Of several refused children the first counts, as one."""
    refused = next((result for result in results if judged(result, plan.uid) is Judgement.REFUSED), None)
    for result in results:
        if judged(result, plan.uid) is not Judgement.REFUSED:
            answers = _learned(answers, plan, result, now)
    if not isinstance(refused, Refused | Exists):
        return _released(answers, plan, results, now)
    if _speaks_of_ipc_lock(plan, refused):
        return replace(answers, ipc_lock_refused=True)
    return _rejected(answers, plan, refused, now)


def _learned(answers: Answers, plan: Plan, result: Result, now: datetime) -> Answers:
    match result:
        case Stored() if plan.status is not None and plan.status.pending is not None:
            return replace(answers, told_at=now)
        case Stored() if plan.status is not None and plan.status.placement is not None:
            return replace(answers, rejection=None)
        case Created(manifest, is_probe=False) | Exists(manifest) if manifest["kind"] == "Service":
            return replace(answers, service_of=plan.attempt)
        case Deleted(action) | Failed(Delete() as action) if action.kind == "Service" and action.name == service_name(
            plan.job.name, answers.service_of
        ):
            return replace(answers, service_of=0)  # the attempt may begin again
        case _:
            return answers


def _released(answers: Answers, plan: Plan, results: Sequence[Result], now: datetime) -> Answers:
    """A Pod is released by the end of its gate, or by its claim."""
    if any(
        isinstance(result, Released)
        or (isinstance(result, Created | Exists) and not result.is_probe and result.manifest["kind"] == "ResourceClaim")
        for result in results
        if judged(result, plan.uid) is Judgement.DONE
    ):
        return replace(answers, released=plan.attempt, released_at=now, rejections=0)
    return answers


def _speaks_of_ipc_lock(plan: Plan, refused: Refused | Exists) -> bool:
    """Whether what was refused may be the capability that we added: then the same is asked without it.

    A policy says no more than Forbidden. Where that is said of the same Pod without IPC_LOCK, too, it was something
    else, and the capability is asked for again the next time.
    """
    return plan.adds_ipc_lock and isinstance(refused, Refused) and refused.denial.failure is Failure.FORBIDDEN


def _rejected(answers: Answers, plan: Plan, refused: Refused | Exists, now: datetime) -> Answers:
    reason, message = _why(refused)
    of = Refusing.PROBE if refused.is_probe else Refusing.CHILD
    tries = answers.rejections + 1
    rejection = Rejection(reason, message, of, refused.manifest, plan.generation, plan.attempt, now, tries)
    answers = replace(answers, rejection=rejection, rejections=tries)
    if of is Refusing.CHILD:  # all of this attempt is taken back, and it begins again under its number
        return replace(answers, released=0, released_at=None)
    if isinstance(refused, Refused) and refused.denial.failure is Failure.FORBIDDEN:
        return replace(answers, ipc_lock_refused=False)
    return answers


def _why(refused: Refused | Exists) -> tuple[PendingReason, str]:
    metadata = refused.manifest["metadata"]
    title = f"{refused.manifest['kind']} {metadata['namespace']}/{metadata['name']}"
    if isinstance(refused, Refused):
        return PendingReason.TEMPLATE_INVALID, f"the API server refuses {title}: {refused.denial.message}"
    return PendingReason.NAME_CONFLICT, taken_words(title, owner_of(refused.owners))


def taken_words(title: str, owner: str) -> str:
    """What to tell of a name that somebody else has."""
    return f"{title} exists and belongs to {owner}; delete it, or delete this job and give it another name"
