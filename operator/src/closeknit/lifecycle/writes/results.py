"""Results of a Plan's writes, as the API server answered: facts, from which `answers.after` learns."""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import msgspec

from closeknit.api.names import JOB_LABEL, TRAINING_JOB
from closeknit.api.text.opaque import found as shown
from closeknit.cluster.objects.meta import Owner, WireStruct
from closeknit.cluster.pods.pod import Pod, WirePod, pod
from closeknit.launch.gang import Manifest
from closeknit.lifecycle.writes.child_kinds import CHILD_KINDS
from closeknit.lifecycle.writes.plan import Action, Delete, Resize, Stop
from closeknit.lifecycle.writes.quota_demand import AdmittedPod, QuotaDemand, refused_pod
from closeknit.lifecycle.writes.quota_shortfall import Shortfall, amount, counts, shortfalls
from closeknit.lifecycle.writes.resource_quotas import Quota
from closeknit.placement.values.sentences import count


class DenialKind(StrEnum):
    """The kinds of the API server's refusals, as in closeknit.kube.errors."""

    LOST = "Lost"  # no usable answer: the write may have been applied all the same
    BUSY = "Busy"  # come back later
    CONFLICT = "Conflict"  # what it was decided on has changed
    UNAUTHORIZED = "Unauthorized"
    NOT_FOUND = "NotFound"
    FORBIDDEN = "Forbidden"  # admission says no
    NO_RIGHT = "NoRight"  # RBAC does: the operator may not do this there at all
    NO_ACCOUNT = "NoAccount"  # admission does: a controller has not made the namespace's service account yet
    INVALID = "Invalid"
    TOO_LARGE = "TooLarge"
    CHANGED = "Changed"  # a Pod is taken, and asks for other GPUs than the one that was sent
    OTHER = "Other"


FORBIDDEN = frozenset({DenialKind.FORBIDDEN, DenialKind.NO_RIGHT})
# Nothing is wrong with what was sent: the same decision may be right a moment later.
PASSING = frozenset(
    {DenialKind.LOST, DenialKind.BUSY, DenialKind.CONFLICT, DenialKind.UNAUTHORIZED, DenialKind.NO_ACCOUNT}
)
_INTERNAL_ERROR = 500  # 503 and 504 are of an API server that is not there, or has no time


@dataclass(frozen=True, slots=True)
class Denial:
    """A refusal by the API server."""

    failure: DenialKind
    code: int  # HTTP status; 0 when no answer came
    reason: str  # the Status object's CamelCase word
    message: str
    retry_after_s: float | None = None

    @property
    def may_last(self) -> bool:
        """Whether the API server answers with a fault that may pass in a moment, or never: an unreachable webhook, or a
        missing account."""
        return self.failure is DenialKind.NO_ACCOUNT or (
            self.failure is DenialKind.LOST and self.code == _INTERNAL_ERROR
        )


@dataclass(frozen=True, slots=True)
class StatusStored:
    """The status was stored."""

    version: str


@dataclass(frozen=True, slots=True)
class Created:
    """A child was made, or would have been."""

    manifest: Manifest
    version: str
    is_probe: bool = False
    admitted: AdmittedPod | None = None
    """What admission made of a Pod that was read whole."""


@dataclass(frozen=True, slots=True)
class Exists:
    """Another object has the name already."""

    manifest: Manifest
    owners: tuple[Owner, ...]
    labels: tuple[tuple[str, str], ...]
    version: str
    is_probe: bool = False
    is_going: bool = False
    """Whether it is being deleted, until its finalizers are done."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """An object that only this job can have named exists already, and must not be read."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class ChildRefused:
    """A child was not made."""

    manifest: Manifest
    denial: Denial
    is_probe: bool = False


@dataclass(frozen=True, slots=True)
class Quotas:
    """The namespace's quotas, before a gang is made."""

    demand: QuotaDemand
    found: tuple[Quota, ...]


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """Whether the operator may make Pods with a service account."""

    name: str
    is_usable: bool


@dataclass(frozen=True, slots=True)
class Deleted:
    """A deletion was requested; a missing object is as good."""

    action: Delete


@dataclass(frozen=True, slots=True)
class Stopped:
    """A Pod was stopped, or told the size of its gang; a missing one is as good."""

    action: Stop | Resize
    version: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """Another failed call: the write of the status, if `action` is None, a deletion, or the read of a name's object."""

    action: Action | None
    denial: Denial


Result = StatusStored | Created | Exists | Unseen | ChildRefused | Quotas | ServiceAccount | Deleted | Stopped | Failed


class _Variable(WireStruct, frozen=True):
    name: str = ""
    value: str | None = None
    value_from: dict[str, Any] | None = None


class _Container(WireStruct, frozen=True):
    name: str = ""
    restart_policy: str | None = None
    env: list[_Variable] | None = None

    def value(self, name: str) -> str | dict[str, Any] | None:
        """What a variable is in it, the last of that name as for a kubelet; None where there is none."""
        entry = next((each for each in reversed(self.env or ()) if each.name == name), None)
        return None if entry is None else entry.value_from or entry.value or ""


class _Launch(WireStruct, frozen=True):
    """The parts of a Pod's spec that its ranks need to find each other, and closeknit to know their end."""

    restart_policy: str | None = None
    hostname: str | None = None
    subdomain: str | None = None
    host_network: bool | None = None
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None

    @property
    def named(self) -> dict[str, _Container]:
        """All its containers: a name is that of one."""
        return {each.name: each for each in (*(self.init_containers or ()), *(self.containers or ()))}


def changed(sent: Manifest, made: Mapping[str, Any], settings: Set[str] = frozenset()) -> Denial | None:
    """What a policy or a webhook has changed of a Pod on its way that its booking or training depends on: its GPUs, its
    claims, its node, its restart policy, its names, and the environment variables of `settings`. None where these are
    as sent, whatever was added."""
    try:
        before, now = pod(msgspec.convert(sent, WirePod)), pod(msgspec.convert(made, WirePod))
        launch, launched = (msgspec.convert(each.get("spec") or {}, _Launch) for each in (sent, made))
    except (msgspec.ValidationError, ValueError):
        return None  # it cannot be read by this version, as the watch will show, too
    if not (isinstance(before, Pod) and isinstance(now, Pod)):
        return None  # without our label it is not ours: closeknit's own policy refuses that
    found = (
        (before.devices_asked != now.devices_asked, f"it asks for {_amounts(now)} instead of {_amounts(before)}"),
        (before.claims != now.claims, f"its claims are {_named(now.claims)} instead of {_named(before.claims)}"),
        (
            (before.node, before.pinned) != (now.node, now.pinned),
            f"it is for node {now.place or '(any)'} instead of {before.place or '(any)'}",
        ),
    )
    words = [told for is_other, told in found if is_other]
    words += _launched_otherwise(launch, launched, settings)
    return Denial(DenialKind.CHANGED, 201, "", " and ".join(words)) if words else None


def _launched_otherwise(sent: _Launch, made: _Launch, settings: Set[str]) -> Iterator[str]:
    """What differs from what was sent. The first variable by name, and the number of others."""
    fields = (
        ("restartPolicy", sent.restart_policy, made.restart_policy),
        ("hostname", sent.hostname, made.hostname),
        ("subdomain", sent.subdomain, made.subdomain),
        ("hostNetwork", bool(sent.host_network), bool(made.host_network)),
    )
    yield from (
        f"its {name} is {shown(now)} instead of {shown(before)}" for name, before, now in fields if before != now
    )
    there, others = made.named, list[str]()
    for name, container in sent.named.items():
        other = there.get(name)
        if other is None:
            yield f"its container {name} is missing"
            continue
        if container.restart_policy != other.restart_policy:
            before, now = shown(container.restart_policy), shown(other.restart_policy)
            yield f"restartPolicy of its container {name} is {now} instead of {before}"
        for setting in sorted(settings):
            wanted, found = container.value(setting), other.value(setting)
            if wanted is not None and wanted != found:
                others.append(f"{setting} in its container {name} is {shown(found)} instead of {shown(wanted)}")
    if others:
        likewise = f" ({count(len(others) - 1, 'more variable')} likewise)" if len(others) > 1 else ""
        yield f"{others[0]}{likewise}"


def _amounts(pod: Pod) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in sorted(pod.devices_asked.items())) or "no GPU"


def _named(claims: Sequence[str]) -> str:
    return ", ".join(claims) or "none"


# "exceeded quota: team, requested: pods=1,requests.cpu=2, used: ...", of the API server's own plugin, in 1.20 to 1.36.
_QUOTA_SAID = re.compile(r"exceeded quota: (?P<name>[^,\s]{1,253}), requested: (?P<asked>[^\s]{1,2000}), used:")
# All of it: "..., used: pods=3,requests.cpu=8, limited: pods=4,requests.cpu=9".
_QUOTA_NUMBERS = re.compile(_QUOTA_SAID.pattern + r" [^\s]{1,2000}, limited: (?P<hard>[^\s]{1,2000})")


class Judgement(StrEnum):
    """The effect of a result on the rest of its Plan."""

    DONE = "Done"
    AGAIN = "Again"  # it may come about by itself
    REFUSED = "ChildRefused"  # somebody has to change something


def judged(result: Result, uid: str) -> Judgement:
    """The effect of the result; uid is the job's."""
    match result:
        case ChildRefused(denial=denial):
            return Judgement.AGAIN if denial.failure in PASSING else Judgement.REFUSED
        case Exists():
            return _judged_name(result, uid)
        case Quotas(demand, found):
            return _judged_quotas(demand, shortfalls(demand, found))
        case ServiceAccount(is_usable=False):
            return Judgement.REFUSED
        case Failed():
            return Judgement.AGAIN
        case _:
            return Judgement.DONE


def is_made_pod(result: Result) -> bool:
    """Whether it is a Pod that was made, and not on trial."""
    return isinstance(result, Created) and not result.is_probe and result.manifest["kind"] == "Pod"


def is_by_quota(result: Result) -> bool:
    """Whether a quota refuses a child."""
    return (
        isinstance(result, ChildRefused)
        and result.denial.failure is DenialKind.FORBIDDEN
        and "exceeded quota" in result.denial.message
    )


def tried_again(refused: Result) -> Result:
    """The refusal of a Pod by a quota that may still count others that have gone: a passing one, where it would fit
    without those."""
    said = _QUOTA_NUMBERS.search(refused.denial.message) if isinstance(refused, ChildRefused) else None
    if said is None or not isinstance(refused, ChildRefused) or not is_by_quota(refused):
        return refused
    asked, hard = (_numbers(said[part]) for part in ("asked", "hard"))
    is_passing = all(amount <= hard.get(name, 0) for name, amount in asked.items())
    return replace(refused, denial=replace(refused.denial, failure=DenialKind.CONFLICT)) if is_passing else refused


def _numbers(said: str) -> dict[str, int]:
    parts = (each.strip().partition("=") for each in said.split(","))
    told = {name: amount(name, text) for name, _, text in parts}
    return {name: number for name, number in told.items() if number is not None}


def asked_of_quota(refused: ChildRefused, before: Sequence[AdmittedPod]) -> AdmittedPod | None:
    """What admission made of a Pod that a quota refuses, as far as that says so, or was known `before`; None where no
    quota does."""
    said = _QUOTA_SAID.search(refused.denial.message)
    if said is None or refused.manifest["kind"] != "Pod":
        return None
    return refused_pod(refused.manifest, _numbers(said["asked"]), before)


def may_leave_more(refused: Result, demand: QuotaDemand | None, read: Quotas | None) -> bool:
    """Whether the quota that refuses a child may have room for it once those are gone that make room for its gang. Of
    one whose scope is not sure to count the gang that is not known here."""
    if demand is None or not demand.given_back or not isinstance(refused, ChildRefused):
        return False
    said = _QUOTA_SAID.search(refused.denial.message)
    if said is None or read is None:
        return True
    return any(quota.name == said["name"] and counts(quota, demand) for quota in read.found)


def _judged_quotas(demand: QuotaDemand, found: Sequence[Shortfall]) -> Judgement:
    if not found:
        return Judgement.DONE
    is_passing = demand.may_be_counted and all(shortfall.is_passing for shortfall in found)
    return Judgement.AGAIN if is_passing else Judgement.REFUSED


def _judged_name(found: Exists, uid: str) -> Judgement:
    owners = [owner.uid for owner in found.owners]
    metadata = found.manifest["metadata"]
    labels = dict(found.labels)
    is_known = labels.get(JOB_LABEL) == metadata["labels"][JOB_LABEL]  # without it, it is not seen
    # What a Pod or a Service of ours owned that had the name before is about to be collected.
    wanted = [(owner["kind"], owner["name"]) for owner in metadata["ownerReferences"] if owner["kind"] != TRAINING_JOB]
    is_left_over = is_known and bool(wanted) and [(owner.kind, owner.name) for owner in found.owners] == wanted
    is_as_good = is_known and owners == [owner["uid"] for owner in metadata["ownerReferences"]]
    if found.is_probe:
        # A trial of a Pod waits until the one of that name is seen to be gone. Of a Service, or of what one owns, that
        # would never be seen; and who owns that is not known on trial.
        is_as_good = (is_as_good or is_left_over) and CHILD_KINDS[found.manifest["kind"]].stream is None
    if is_as_good:
        # Made before, and its answer lost; or of a booking that was taken back, which began under the same number.
        return Judgement.AGAIN if found.is_going else Judgement.DONE
    is_own_probe = found.is_probe and any(owner.is_job(uid) for owner in found.owners)  # ours, and not gone yet
    return Judgement.AGAIN if is_left_over or is_own_probe else Judgement.REFUSED


def unfinished(results: Sequence[Result], uid: str) -> Denial | None:
    """Why the Plan is to be decided again: the first result that may still come about; None without any."""
    for result in results:
        if judged(result, uid) is Judgement.AGAIN:
            if isinstance(result, ChildRefused | Failed):
                return result.denial
            return Denial(DenialKind.CONFLICT, 409, "", "what is left of it from before is not gone yet")
    return None
