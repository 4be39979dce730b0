"""Bound Pods whose containers do not start: an image that cannot be pulled, a missing ConfigMap, a driver that does not
prepare a claim.

The status says so, and nothing ends: a registry comes back, a ConfigMap is made, and no other placement is better.
"""

from datetime import datetime

from closeknit.cluster.pods.pod import Pod
from closeknit.cluster.pods.symptoms import Symptom, of_waiting
from closeknit.lifecycle.attempt.attempt import Attempt
from closeknit.lifecycle.status.blame import SILENT_AFTER
from closeknit.lifecycle.status.pauses import is_between, later
from closeknit.placement.values.sentences import count


def words(attempt: Attempt) -> str | None:
    """What keeps Pods of the gang from starting, and what to do; None where no cause is known."""
    waiting = [pod for pod in attempt.present if _is_waiting(pod)]
    told = [(pod, said) for pod in waiting if (said := _said(pod))]
    if told:
        pod, said = told[0]
        return f"Pod {pod.name} on node {pod.node} does not start: {said}{_others(len(told) - 1)}"
    if _young_until(attempt) is not None:
        return None
    silent = [pod for pod in waiting if _silent_until(attempt, pod) <= attempt.subject.now]
    if not silent:
        return None
    minutes = SILENT_AFTER.total_seconds() / 60
    who = f"Pod {silent[0].name} on node {silent[0].node}"
    others = _others(len(silent) - 1)
    return f"{who} has not started for {minutes:.0f} min{others}; kubectl describe pod tells what it waits for"


def told_at(attempt: Attempt) -> datetime | None:
    """When to check again; None where no Pod is starting."""
    waiting = [pod for pod in attempt.present if _is_waiting(pod)]
    young_until = _young_until(attempt)
    if waiting and young_until is not None:
        return young_until
    moments = [_silent_until(attempt, pod) for pod in waiting]
    return min((each for each in moments if each > attempt.subject.now), default=None)


def _is_waiting(pod: Pod) -> bool:
    return bool(pod.node) and pod.phase in {"", "Pending"} and pod.deletion_timestamp is None


def _said(pod: Pod) -> str | None:
    """The kubelet's message about its first container that does not start."""
    for container in pod.containers:
        if of_waiting(container) not in {None, Symptom.SILENT}:
            message = container.message.strip()
            return f"container {container.name} waits for {container.reason}{f' ({message})' if message else ''}"
    return None


def _others(number: int) -> str:
    return f" ({count(number, 'more Pod')} likewise)" if number else ""


def _young_until(attempt: Attempt) -> datetime | None:
    """Until when no Pod can have been silent for too long, since none is older than its attempt; None where that is
    over, or unknown. It spares a look at each Pod of a starting gang."""
    begun = attempt.begun
    if begun is None or not is_between(begun, attempt.subject.now, begun + SILENT_AFTER):
        return None
    return begun + SILENT_AFTER


def _silent_until(attempt: Attempt, pod: Pod) -> datetime:
    """Until when a Pod may start without a message; now if clocks that were set make it unknown."""
    found = later(pod.created, attempt.begun, attempt.subject.now)
    return attempt.subject.now if found is None else found + SILENT_AFTER
