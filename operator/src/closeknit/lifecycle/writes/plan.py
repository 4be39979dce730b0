"""The next writes for one job, as a value: the Plan. The shell writes it, this package never does.

The order of a Plan is fixed: the demand (a quota that has less left ends the Plan), the account (one that the operator
may not use ends the Plan), the probes (stored nowhere; a refusal ends the Plan; the demand ends it only after these
where `tells_quotas_last`), the status by compare-and-swap (a failure ends the Plan), the opening, one create after the
other (a refusal ends the Plan), then the actions in any order and the notice. So a booking is stored before any child
exists, the end of an attempt before any child goes, and of a gang whose first Pod is refused nothing more is made or
told.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from math import inf

from closeknit.api.names import JobKey
from closeknit.api.reasons import EndReason, EventAction, EventReason, ExclusionReason, PendingReason
from closeknit.api.trainingjob_status import TrainingJobStatus
from closeknit.launch.gang import Manifest
from closeknit.lifecycle.writes.quota_demand import AdmittedPod, QuotaDemand


@dataclass(frozen=True, slots=True)
class Create:
    """Creates one child, and at once what it owns. An existing one of the attempt's own is as good."""

    manifest: Manifest
    owns: tuple[Manifest, ...] = ()
    """A Pod's claims, a Service's ConfigMap, without their owner, whose uid is not known yet
    (`closeknit.launch.manifests.owner`)."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes one child: the one of this uid, or without a uid the job's own of that name. Or the job, with all that it
    owns."""

    kind: str
    name: str
    uid: str | None = None
    is_forced: bool = False
    """Whether it goes at once, though its kubelet has not said that its containers have ended."""
    is_preempted: bool = False
    """See Stop."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Makes the kubelet of one Pod, that of this uid, end its containers. The Pod stays with its logs and holds
    nothing."""

    name: str
    uid: str
    is_replaced: bool = False
    """Whether another Pod of the attempt has its place: it leaves the attempt's Service, for its kubelet may never
    confirm its end, and its host name is the other's."""
    is_preempted: bool = False
    """Whether its job makes room for another: then Kubernetes' condition DisruptionTarget says so before it ends. It
    ends all the same where that is refused."""


@dataclass(frozen=True, slots=True)
class Resize:
    """Tells the Pods of a gang its size, by an annotation of node rank 0's, that of this uid."""

    name: str
    uid: str
    size: str


Action = Create | Delete | Stop | Resize


class Addition(Enum):
    """Optional requests that we add to Pods, and omit where they are refused; the value is what may refuse it."""

    IPC_LOCK = "a policy of the namespace"
    CPUS = "a quota or a LimitRange"
    SIDECAR = "a policy of the namespace, a LimitRange, or an API server without its restart rules"


class Telling(Enum):
    """The importance for the job of a Plan that only writes why it waits."""

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
    """The whole next status; None to keep the stored one."""
    demand: QuotaDemand | None = None
    """Set before the gang's first Pod: checked against the namespace's quotas before anything is created."""
    admitted: tuple[AdmittedPod, ...] = ()
    """What admission made of Pods of the job before, for a trial that a quota refuses, and that shows nothing of it."""
    account: str = ""
    """The service account of the gang's Pods if it needs a right; checked before anything is created."""
    probes: tuple[Manifest, ...] = ()
    """Sent as dry-run creates before anything is stored."""
    tells_quotas_last: bool = False
    """Whether the job was refused for another reason than a quota: while that lasts, it is told the same, and not in
    turn that a quota has too little left."""
    opening: tuple[Create, ...] = ()
    """Shows whether the rest is worth making: for a new gang its Service and its first Pod."""
    actions: tuple[Action, ...] = ()
    notice: Notice | None = None
    """Sent once the status is stored, and the opening not refused."""
    wake_after_s: float | None = None
    """When to look at this job again though nothing may have changed."""
    adds: frozenset[Addition] = frozenset()
    """Additions of this Plan's Pods."""
    sets: frozenset[str] = frozenset()
    """Names of the environment variables that closeknit sets in them: others must not change these on their way."""
    is_by_choice: bool = False
    """Whether it leaves GPUs, or Pods that run, though nothing forces it to: the job stays as it is where the API
    server refuses what follows, before the status is stored."""
    growth: str = ""
    """When the growth was booked whose added nodes get their Pods, without which the gang trains on: where one of these
    is refused, the growth is taken back, and the job is not refused. Empty of all else."""
    is_quota_late: bool = False
    """Whether quotas may still count Pods that have just gone: a Pod that one refuses for no more is tried again."""
    telling: Telling | None = None
    """Its importance where there is nothing else to write: such a Plan may be left for later."""
    adds_fields: frozenset[str] = frozenset()
    """Paths of fields, where the status does nothing else than to add them to what we wrote last."""
    unkept: frozenset[str] = frozenset()
    """Those that it is not sent for again: the API server has taken them, and not kept them."""
    error: Exception | None = field(default=None, compare=False)
    """A mistake of ours in deciding on this job; the other jobs go on."""

    def woken_at(self, now: datetime, *moments: datetime | None) -> "Plan":
        """The Plan, after which the job is looked at again at the first of these moments at the latest."""
        pauses_s = [max(0.0, (each - now).total_seconds()) for each in moments if each is not None]
        if not pauses_s:
            return self
        return replace(self, wake_after_s=min(*pauses_s, inf if self.wake_after_s is None else self.wake_after_s))

    @property
    def is_followed_by_children(self) -> bool:
        """Whether more than an Event comes with the status."""
        return bool(self.probes or self.opening or self.actions)

    @property
    def writes(self) -> bool:
        """Whether there is anything to send."""
        return self.status is not None or bool(self.opening) or bool(self.actions) or self.notice is not None
