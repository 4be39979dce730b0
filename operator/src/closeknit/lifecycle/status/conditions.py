"""Conditions of our objects, and the one word derived from those of a TrainingJob."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from closeknit.api.reasons import (
    ConditionReason,
    ConditionType,
    EndReason,
    PendingReason,
    TopologyConditionType,
    TopologyReason,
)
from closeknit.api.text.printable import printable
from closeknit.api.trainingjob_status import State
from closeknit.api.wire import Condition

MESSAGE_MAX_LENGTH = 4096  # of status.pending.message; an API server's own words may be longer
_ORDER = {condition.value: place for place, condition in enumerate(ConditionType)}


@dataclass(frozen=True, slots=True)
class Observation:
    """The current truth of one condition; status None is Unknown."""

    type: ConditionType | TopologyConditionType
    status: bool | None
    reason: ConditionReason | EndReason | PendingReason | TopologyReason
    message: str = ""


def timestamp(now: datetime) -> str:
    """The moment as Kubernetes writes metav1.Time: UTC, whole seconds."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(written: str) -> datetime:
    """The moment of a metav1.Time or MicroTime."""
    return datetime.fromisoformat(written)


def stated(message: str, most: int = MESSAGE_MAX_LENGTH) -> str:
    """The message for a status: others' words made printable, and cut to the schema's limit."""
    return printable(message, most)


def observed(
    stored: Sequence[Condition], observations: Iterable[Observation], *, generation: int, now: datetime
) -> list[Condition]:
    """The stored conditions updated by the observations, in the order of ConditionType.

    lastTransitionTime moves only when a status does.
    """
    by_type = {condition.type: condition for condition in stored}
    for observation in observations:
        status = {True: "True", False: "False", None: "Unknown"}[observation.status]
        before = by_type.get(observation.type.value)
        by_type[observation.type.value] = Condition(
            type=observation.type.value,
            status=status,
            reason=observation.reason,
            message=stated(observation.message),
            last_transition_time=before.last_transition_time if before and before.status == status else timestamp(now),
            observed_generation=generation,
        )
    return sorted(by_type.values(), key=lambda condition: (_ORDER.get(condition.type, len(_ORDER)), condition.type))


def found(conditions: Iterable[Condition], wanted: ConditionType) -> Condition | None:
    """The condition of this type; None where there is none."""
    return next((condition for condition in conditions if condition.type == wanted), None)


def is_true(conditions: Iterable[Condition], wanted: ConditionType) -> bool:
    """Whether the condition is there and True."""
    return any(condition.type == wanted and condition.status == "True" for condition in conditions)


def is_said(conditions: Iterable[Condition], wanted: ConditionType) -> bool:
    """Whether there is a condition of this type that is not False."""
    told = found(conditions, wanted)
    return told is not None and told.status != "False"


def state(conditions: Sequence[Condition], restarts: int) -> State:
    """The STATUS column: the first that holds."""
    for condition, word in (
        (ConditionType.FAILED, State.FAILED),
        (ConditionType.SUCCEEDED, State.SUCCEEDED),
        (ConditionType.SUSPENDED, State.SUSPENDED),
        (ConditionType.RUNNING, State.RUNNING),
        (ConditionType.PLACED, State.STARTING),
    ):
        if is_true(conditions, condition):
            return word
    return State.RESTARTING if restarts else State.QUEUED
