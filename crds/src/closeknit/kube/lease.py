"""A Lease, and what a candidate for it does next: pure, on readings of the candidate's own clock.

The rules are client-go's (tools/leaderelection), and one more:
    nobody compares clocks              a Lease has run out when it has not changed for its duration on the clock of
                                        who looks at it, counted from when he saw it first
    who leads stops early               RENEW_DEADLINE_S after the start of the last renewal that was answered, which
                                        is before anybody else sees the Lease run out
    one leads by an answered write      a Lease that names us by a write whose answer was lost is written once more
    a Lease that was deleted            counts as held, for who saw it held, until it would have run out
    each reign has an epoch             higher than all before it, stored in leaseTransitions by the very write that
                                        takes the Lease. The API server takes any number there, and a Lease that was
                                        deleted begins at nothing: so what jobs say of epochs counts, too
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from closeknit.kube.api import JsonObject, Resource

LEASES = Resource("coordination.k8s.io", "v1", "leases")
# client-go's LeaseDuration, RenewDeadline and RetryPeriod as every component of Kubernetes has them.
LEASE_S = 15.0
RENEW_DEADLINE_S = 10.0
RETRY_S = 2.0
# A leader's request is sent so soon after he was found to lead, or not at all: a new connection to an API server takes
# milliseconds, unless the process was stopped meanwhile.
SENT_WITHIN_S = 1.0
# Of what a Lease says of its own duration at most so much counts: another version of ours may ask for more than
# LEASE_S, and one odd number must not keep everybody out for a day.
LONGEST_S = 60.0
# leaseTransitions is an int32. What is beyond was written by nobody of ours, and counts as nothing.
LAST_EPOCH = 2**31 - 2


@dataclass(frozen=True, slots=True)
class Lease:
    """What a stored Lease says."""

    version: str
    """resourceVersion."""
    holder: str
    """Empty where it was released."""
    transitions: int
    duration_s: float
    acquired: str
    renewed: str
    """As its holder wrote it: it is compared with itself, and with no clock."""

    @property
    def claim(self) -> tuple[object, ...]:
        """All that its holder writes: a new label is no sign of life."""
        return (self.holder, self.transitions, self.acquired, self.renewed)


def lease(document: JsonObject) -> Lease:
    """Reads a Lease. A field of another type than the API server's counts as missing."""
    metadata, spec = document.get("metadata"), document.get("spec")
    fields: Mapping[str, Any] = spec if isinstance(spec, dict) else {}
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else ""
    transitions, duration = fields.get("leaseTransitions"), fields.get("leaseDurationSeconds")
    return Lease(
        version=_text(version),
        holder=_text(fields.get("holderIdentity")),
        transitions=transitions if isinstance(transitions, int) else 0,
        duration_s=float(duration) if isinstance(duration, int) else LEASE_S,
        acquired=_text(fields.get("acquireTime")),
        renewed=_text(fields.get("renewTime")),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True)
class StandBy:
    """Another one leads; nothing to write before this moment."""

    until: float


@dataclass(frozen=True, slots=True)
class Write:
    """Write the Lease with this epoch: to take it, or to keep it."""

    version: str
    """The resourceVersion to test; empty to create the Lease."""
    epoch: int


@dataclass(frozen=True, slots=True)
class Abdicate:
    """We led, and do so no longer."""

    reason: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """One candidate, and all that it knows."""

    identity: str
    seen: Lease | None = None
    """As it was read last; None where there was none."""
    seen_at: float = -inf
    """When its claim was seen first."""
    holder: str = ""
    """Who had it when it was last there."""
    runs_out_at: float = -inf
    """When that claim has run out."""
    renewed_at: float | None = None
    """When the last answered write of ours was begun; None while another one leads."""
    epoch: int = 0
    """Of our reign."""

    def leads(self, now: float) -> bool:
        """Whether it may act."""
        return self.renewed_at is not None and now < self.renewed_at + RENEW_DEADLINE_S

    def looked(self, seen: Lease | None, now: float) -> "Candidate":
        """After a read that was answered at this moment."""
        if seen is None:
            return replace(self, seen=None)
        if self.seen is not None and self.seen.claim == seen.claim:
            return replace(self, seen=seen)
        length_s = max(LEASE_S, min(seen.duration_s, LONGEST_S))
        return replace(self, seen=seen, seen_at=now, holder=seen.holder, runs_out_at=now + length_s)

    def wrote(self, stored: Lease, epoch: int, began: float, now: float) -> "Candidate":
        """After a write of ours that was begun then, and was answered with what is stored."""
        return replace(self.looked(stored, now), renewed_at=began, epoch=epoch)

    def next(self, now: float, highest_epoch: int) -> StandBy | Write | Abdicate:
        """What to do now. `highest_epoch` is that of all that is known to be booked."""
        version = "" if self.seen is None else self.seen.version
        if self.renewed_at is not None:
            if not self.leads(now):
                return Abdicate(f"the Lease was not renewed within {RENEW_DEADLINE_S:g} s")
            if self.seen is not None and self.seen.holder != self.identity:
                return Abdicate(f"{self.seen.holder or 'nobody'} holds the Lease")
            return Write(version, max(self.epoch, highest_epoch))
        if self.holder not in {"", self.identity} and now < self.runs_out_at:
            return StandBy(self.runs_out_at)
        transitions = 0 if self.seen is None else self.seen.transitions
        return Write(version, max(counted(transitions), counted(highest_epoch), self.epoch) + 1)


def counted(epoch: int | None) -> int:
    """The epoch where one of ours can have written it, else 0."""
    return epoch if epoch is not None and 0 < epoch <= LAST_EPOCH else 0
