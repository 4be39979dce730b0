"""What is to be written for one job, as a value: the Plan. The shell writes it, this package never does.

The order of a Plan is fixed: the demand (a quota that has less left ends the Plan), the account (one that the operator
may not use ends the Plan), the probes (stored nowhere; a
refusal ends the Plan), the status by compare-and-swap (a failure ends the Plan), the opening, one create after the
other (a refusal ends the Plan), then the actions in any order and the notice. So a booking is stored before any child
exists, the end of an attempt before any child goes, and of a gang whose first Pod is refused nothing more is made or
told.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from math import inf

from closeknit.api.names import EndReason, EventAction, EventReason, ExclusionReason, JobKey, PendingReason
from closeknit.api.trainingjob_status import TrainingJobStatus
from closeknit.launch.gang import Manifest
from closeknit.lifecycle.writes.quota_demand import QuotaDemand


@dataclass(frozen=True, slots=True)
class Create:
    """Creates one child, and at once what it owns. One of that name that is the attempt's own already is as good."""

    manifest: Manifest
    owns: tuple[Manifest, ...] = ()
    """Of a Pod its claims, of a Service its ConfigMap, without their owner, whose uid is not known yet
    (`closeknit.launch.manifests.owner`)."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes one child: the one of this uid, or without one, whatever of the name is the job's own."""

    kind: str
    name: str
    uid: str | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """Has the kubelet of one Pod, that of this uid, end its containers. The Pod stays, with its logs, and holds nothing
    any more."""

    name: str
    uid: str


Action = Create | Delete | Stop


class Addition(Enum):
    """What Pods ask for on our behalf, and do without where it is refused; the value is what may refuse it."""

    IPC_LOCK = "a policy of the namespace"
    CPUS = "a quota or a LimitRange"


class Telling(Enum):
    """What a Plan that does nothing but tell a job why it waits means to the job."""

    FIRST = "it was told nothing yet, or not of this spec"
    NEWS = "it was not told this reason lately"
    AGAIN = "it was told this reason lately, or other words for it"


@dataclass(frozen=True, slots=True)
class Notice:
    """One Event about one change of an object's state; `name` is a function of object and state."""

    name: str
    reason: EventReason | EndReason | PendingReason | ExclusionReason
    action: EventAction
    note: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The next step of one job, decided on the version `resource_version` of it."""

    job: JobKey
    uid: str
    resource_version: str
    generation: int
    attempt: int
    status: TrainingJobStatus | None = None
    """The whole next status; None where the stored one stands, and nothing is written."""
    demand: QuotaDemand | None = None
    """Of a gang none of which is there: compared with the namespace's quotas before anything is made."""
    account: str = ""
    """The service account of the gang's Pods where it is one that only some may use; asked before anything is made."""
    probes: tuple[Manifest, ...] = ()
    """Sent as dry-run creates before anything is stored."""
    opening: tuple[Create, ...] = ()
    """Shows whether the rest is worth making: of a gang of which nothing is there, its Service and its first Pod."""
    actions: tuple[Action, ...] = ()
    notice: Notice | None = None
    """Sent once the status is stored, and the opening not refused."""
    wake_after_s: float | None = None
    """When this job is to be looked at again though nothing may have changed by then."""
    adds: frozenset[Addition] = frozenset()
    """What the Pods of this Plan ask for on our behalf."""
    sets: frozenset[str] = frozenset()
    """Names of the environment variables that closeknit sets in them: nobody else may change these on their way."""
    telling: Telling | None = None
    """What its words mean to the job, where there is nothing else to write: such a Plan may be left for later."""
    error: Exception | None = field(default=None, compare=False)
    """What went wrong in deciding on this job: a mistake of ours, and no reason to leave the other jobs alone."""

    def woken_at(self, now: datetime, *moments: datetime | None) -> "Plan":
        """The Plan, after which the job is looked at again at the first of these moments at the latest."""
        pauses_s = [max(0.0, (each - now).total_seconds()) for each in moments if each is not None]
        if not pauses_s:
            return self
        return replace(self, wake_after_s=min(*pauses_s, inf if self.wake_after_s is None else self.wake_after_s))

    @property
    def writes(self) -> bool:
        """Whether there is anything to send."""
        return self.status is not None or bool(self.opening) or bool(self.actions) or self.notice is not None
