"""What is tried at the API server before a booking is stored."""

from collections import Counter
from collections.abc import Iterable, Iterator

from closeknit.api.reasons import PendingReason
from closeknit.launch.gang import Gang, Manifest
from closeknit.launch.manifests.pod_manifest import pod
from closeknit.lifecycle.attempt import creation
from closeknit.lifecycle.attempt.subject import Subject
from closeknit.lifecycle.status.pending import traits


def is_refused_otherwise(subject: Subject) -> bool:
    """Whether the job was last refused for something else than a quota. After a restart its status says so."""
    rejection, pending = subject.answers.rejection, subject.job.status.pending
    if rejection is not None:
        return rejection.reason is not PendingReason.QUOTA_EXCEEDED
    is_probed = pending is not None and traits(pending.reason).is_probed
    return is_probed and pending is not None and pending.reason != PendingReason.QUOTA_EXCEEDED


def probes(subject: Subject, gang: Gang) -> tuple[Manifest, ...]:
    """Probes before the booking: none, unless something was refused the last time. A restart forgets what, but not that
    it was. After a quota's refusal two Pods of each role follow: the gang is compared as admission makes these."""
    rejection, pending = subject.answers.rejection, subject.job.status.pending
    reason = rejection.reason if rejection is not None else pending.reason if pending is not None else None
    of_roles = _of_each_role(gang, 2) if reason == PendingReason.QUOTA_EXCEEDED else ()
    if rejection is not None and rejection.manifest is not None:
        return _distinct((creation.as_now(rejection.manifest, gang), *of_roles))
    is_probed = pending is not None and traits(pending.reason).is_probed
    return _distinct((*((pod(gang, 0),) if is_probed else ()), *of_roles))


def trials(subject: Subject, gang: Gang) -> tuple[Manifest, ...]:
    """Trials before a gang that runs ends for this one; after a refusal two Pods of each role are among them."""
    of_roles = () if subject.answers.refused_change is None else _of_each_role(gang, 2)
    return _distinct((*creation.trials(gang), *of_roles))


def probes_with_first(subject: Subject, gang: Gang) -> tuple[Manifest, ...]:
    """The same, and the first Pod of each role in any case: others are to end for these."""
    return _distinct((*_of_each_role(gang, 1), *probes(subject, gang)))


def _of_each_role(gang: Gang, number: int) -> Iterator[Manifest]:
    """So many Pods of each role."""
    roles = Counter[str]()
    for at, member in enumerate(gang.members):
        roles[member.role] += 1
        if roles[member.role] <= number:
            yield pod(gang, at)


def _distinct(asked: Iterable[Manifest]) -> tuple[Manifest, ...]:
    return tuple({(each["kind"], each["metadata"]["name"]): each for each in asked}.values())
