"""What a TrainingJob says of itself, for commands that show it and decide nothing.

The models of closeknit.api take a third of a second to import and a millisecond for each job: a list of a thousand jobs
is to be there in one second. Every field here is one of theirs, and a test compares both.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from closeknit.api.names import DEFAULT_NAMESPACE, NOT_SEEN, JobKey


class _Told(msgspec.Struct, frozen=True, rename="camel"):
    """Base: camelCase on the wire, unknown fields are skipped."""


class ToldMetadata(_Told, frozen=True):
    """Of metadata."""

    name: str
    namespace: str | None = None
    uid: str | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class ToldSpec(_Told, frozen=True):
    """Of spec."""

    gpus: int | None = None
    queue: str | None = None
    priority_class_name: str | None = None
    suspend: bool | None = None


class ToldCondition(_Told, frozen=True):
    """Of status.conditions."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class ToldPending(_Told, frozen=True):
    """Of status.pending."""

    reason: str
    message: str = ""
    since: str | None = None
    queued_since: str | None = None
    nearest: tuple[str, ...] = ()
    estimated_start: str | None = None


class ToldPlacement(_Told, frozen=True):
    """Of status.placement, less its nodes."""

    node_count: int = 0
    gpus: int | None = None
    levels: Mapping[str, int] | None = None
    predicted_bus_bandwidth_gb_s: float | None = msgspec.field(name="predictedBusBandwidthGBps", default=None)
    ideal_bus_bandwidth_gb_s: float | None = msgspec.field(name="idealBusBandwidthGBps", default=None)
    limited_by: str | None = None
    ended_at_budget: bool | None = None
    swapping: bool | None = None
    lost: str | None = None


class ToldPhases(_Told, frozen=True):
    """Of status.attempts[].phases: durations such as 41s."""

    detect: str | None = None
    decide: str | None = None
    free: str | None = None
    bind: str | None = None
    start: str | None = None
    first_step: str | None = None


class ToldExit(_Told, frozen=True):
    """Of status.attempts[].exits."""

    pod: str
    node: str | None = None
    exit_code: int | None = None
    reason: str | None = None
    message: str | None = None


class ToldBlame(_Told, frozen=True):
    """Of status.attempts[].blamed."""

    node: str
    gpu: str | None = None


class ToldAttempt(_Told, frozen=True):
    """Of status.attempts."""

    number: int
    reason: str
    charged: bool = False
    ended: str | None = None
    message: str | None = None
    in_place: bool | None = None
    ran: str | None = None
    phases: ToldPhases | None = None
    exits: tuple[ToldExit, ...] | None = None
    blamed: tuple[ToldBlame, ...] | None = None


class ToldCost(_Told, frozen=True):
    """Of status.cost."""

    trained_seconds: int = 0
    lost_gpu_seconds: Mapping[str, int] = msgspec.field(name="lostGPUSeconds", default_factory=dict)
    ettr: float | None = None


class ToldEnvironment(_Told, frozen=True):
    """Of status.environment."""

    warnings: tuple[str, ...] = ()
    nccl_version: str | None = None


class ToldStatus(_Told, frozen=True):
    """Of status."""

    state: str | None = None
    reason: str | None = None
    message: str | None = None
    restarts: int | None = None
    conditions: tuple[ToldCondition, ...] = ()
    attempt: int | None = None
    attempts: tuple[ToldAttempt, ...] = ()
    start_time: str | None = None
    cost: ToldCost | None = None
    environment: ToldEnvironment | None = None
    placement: ToldPlacement | None = None
    pending: ToldPending | None = None
    patient_until: str | None = None

    def condition(self, kind: str) -> ToldCondition | None:
        """The condition of a type; None without one."""
        return next((each for each in self.conditions if each.type == kind), None)

    def is_true(self, kind: str) -> bool:
        """Whether a condition says True."""
        found = self.condition(kind)
        return found is not None and found.status == "True"


class ToldJob(_Told, frozen=True):
    """A TrainingJob."""

    metadata: ToldMetadata
    spec: ToldSpec = ToldSpec()
    status: ToldStatus = ToldStatus()
    unreadable: str | None = None
    """What is wrong with its spec, of one that closeknit cannot read."""

    @property
    def key(self) -> JobKey:
        """Namespace and name."""
        return JobKey(self.metadata.namespace or DEFAULT_NAMESPACE, self.metadata.name)

    @property
    def state(self) -> str:
        """Its one word."""
        return self.status.state or "Queued"

    @property
    def reason(self) -> str | None:
        """What is wrong or waited for, in one word; None where all is well."""
        if self.status.reason is None and self.status.state is None:
            return NOT_SEEN
        return self.status.reason


_decode = msgspec.json.Decoder(ToldJob).decode


def told(document: bytes) -> ToldJob:
    """The job of a JSON document. Raises msgspec.DecodeError."""
    return _decode(document)


def told_of(body: Mapping[str, Any]) -> ToldJob:
    """The job of plain dicts and lists. Raises msgspec.ValidationError."""
    return msgspec.convert(body, ToldJob)
