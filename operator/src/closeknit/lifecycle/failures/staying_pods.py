"""The Pods of a gang that stay while those of lost nodes are replaced: they wait in their barriers for the new ones,
and start again in place. Nothing is written of them. So do those of a gang that grows, whose added nodes have new
Pods; node rank 0's is told the size.

Else the whole gang gets new Pods, as it does without its sidecar. `cannot_stay` has the rule, in one place.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from closeknit.api.names import ATTEMPT_LABEL
from closeknit.api.trainingjob_status import MAX_REPLACED, MAX_REPLACEMENTS
from closeknit.cluster.booking.booking import Booking, BookingShare
from closeknit.cluster.pods.pod import Pod
from closeknit.launch.gang import Gang
from closeknit.launch.manifests.pod_manifest import settings
from closeknit.lifecycle.attempt.attempt import Attempt
from closeknit.lifecycle.attempt.subject import Subject
from closeknit.lifecycle.failures.refused_growth import size_of
from closeknit.lifecycle.writes.plan import Action, Delete, Resize, Stop

ALL_LOST = "none of its nodes is left"
NO_SIDECAR = "its Pods cannot restart in place"


def cannot_stay(attempt: Attempt, shares: Sequence[BookingShare]) -> str:
    """Why the Pods of those shares that are not lost cannot stay; empty where they can."""
    if not any(pod.settings for pod in attempt.present):
        return NO_SIDECAR
    if attempt.subject.answers.stop_refused:
        return "the API server does not let closeknit change a replaced Pod"
    if any(share.succeeded for share in attempt.shares):
        return "a rank of it is over"
    if all(share.lost for share in shares):
        return ALL_LOST
    if any(share.replacement >= MAX_REPLACEMENTS for share in shares) or _places(shares) > MAX_REPLACED:
        return f"Pods of more than {MAX_REPLACED} of its places were replaced"
    for pod, share in zip(attempt.pods, shares, strict=True):
        is_to_be_made = pod is None and share.replacement
        if not (share.lost or is_to_be_made) and (words := _leaves(pod)):
            return words
    return ""


def cannot_grow(attempt: Attempt) -> bool:
    """Whether the Pods of this gang cannot take another size."""
    first = attempt.pods[0]
    return attempt.subject.answers.resize_refused or first is None or not first.size


def replacing(before: BookingShare, after: BookingShare) -> BookingShare:
    """The share with the number of its Pod, where Pods stay: another one where the share was lost."""
    return replace(after, replacement=before.replacement + 1 if before.lost and not after.lost else before.replacement)


def told_size(attempt: Attempt) -> tuple[Action, ...]:
    """Tells the Pods that stay the size of the gang, where node rank 0's does not have it yet: once all the others are
    there, for the API server may refuse them, and the gang never becomes smaller in these Pods."""
    pod, booking = attempt.pods[0], attempt.booking
    size = size_of(booking.shares[: booking.workers])
    if pod is None or not pod.size or pod.size == size or not attempt.is_swapping:
        return ()
    if attempt.missing or attempt.ending or attempt.unclaimed:
        return ()
    return (Resize(pod.name, pod.uid, size),)


def _places(shares: Iterable[BookingShare]) -> int:
    return sum(1 for share in shares if share.lost or share.replacement)


def _leaves(pod: Pod | None) -> str:
    """Why this Pod cannot stay; empty where it can."""
    if pod is None:
        return "a Pod of it is gone"
    if pod.deletion_timestamp is not None or pod.is_stopped:
        return f"its Pod {pod.name} is being ended"
    if not pod.is_live:
        return f"its Pod {pod.name} has ended"
    return "" if pod.settings else NO_SIDECAR


def is_missed(attempt: Attempt) -> str:
    """Of a gang whose new Pods are booked: why those that stay cannot; empty where they can. New ones may still be
    made, and made again. Where ranks of a gang that grows are over, the others end as they would have, and nobody waits
    for the new ones."""
    if is_ending_as_it_was(attempt):
        old = list(zip(attempt.pods, attempt.shares, strict=True))[: len(attempt.pods) - attempt.added]
        return next(filter(None, (_leaves(pod) for pod, share in old if not share.succeeded)), "")
    if attempt.subject.answers.resize_refused and told_size(attempt):
        return "the API server does not let closeknit tell its Pods that it grows"
    for pod, share in zip(attempt.pods, attempt.shares, strict=True):
        is_to_be_made = share.replacement and (pod is None or pod.phase != "Failed")
        if not is_to_be_made and (words := _leaves(pod)):
            return words
    return ""


def is_ending_as_it_was(attempt: Attempt) -> bool:
    """Whether ranks of a gang that grows are over, with the size that they had."""
    return attempt.is_growing and any(share.succeeded for share in attempt.shares)


def told_otherwise(gang: Gang, attempt: Attempt, staying: Sequence[int]) -> str:
    """Why the Pods at these positions do not go together with new ones: they would be told something else today. Empty
    where they do."""
    if not gang.sidecar_image:
        return "not all its nodes can restart Pods in place"
    for pod, now in zip((attempt.pods[at] for at in staying), settings(gang, staying), strict=True):
        if pod is not None and pod.settings != now:
            return f"its Pod {pod.name} would be told other settings today"
    return ""


def farewells(subject: Subject, held: Booking) -> tuple[Action, ...]:
    """What becomes of the replaced Pods: they leave the Service, are stopped where their kubelet lives, and else
    deleted. Each is written once, and nothing waits for it. Those of a growth that was taken back are deleted: their
    trainers have said nothing, and the next growth needs their names."""
    return tuple(action for pod in subject.children.outlived(held) for action in _farewell(subject, held, pod))


def _farewell(subject: Subject, held: Booking, pod: Pod) -> tuple[Action, ...]:
    if pod.child is not None and held.has_no_place_for(pod.child):
        return () if pod.deletion_timestamp is not None else (Delete("Pod", pod.name, pod.uid),)
    if not pod.is_live:
        return ()
    actions: list[Action] = []
    if pod.labels.get(ATTEMPT_LABEL) == str(held.attempt) and not subject.answers.stop_refused:
        actions.append(Stop(pod.name, pod.uid, is_replaced=True))
    view = subject.cluster.nodes.get(pod.node)
    is_alive = view is not None and view.is_ready and view.silence is None
    is_kept = pod.has_begun and is_alive and not subject.answers.stop_refused
    if pod.deletion_timestamp is None and not is_kept:
        actions.append(Delete("Pod", pod.name, pod.uid))
    return tuple(actions)
