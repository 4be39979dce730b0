"""Pods that no scheduler has looked at: not bound, and without a reason.

A running scheduler says within a second that a Pod is bound, or why not. Silence has three causes: no scheduler serves
the name in `schedulerName`, or the scheduler waits for a missing object of the template's own, or it does not run. The
job causes the first two, and its GPUs are kept from jobs that could run: the attempt ends. It does not cause the third.
No other job could start either, and the gang is bound as soon as the scheduler is back: the status only says so.
"""

from collections.abc import Iterable
from datetime import datetime

from closeknit.api.names import MNNVL
from closeknit.api.text.opaque import short
from closeknit.cluster.job_volumes import Awaited
from closeknit.cluster.pods.pod import Pod
from closeknit.lifecycle.attempt.attempt import Attempt
from closeknit.lifecycle.attempt.launched_gang import Lost
from closeknit.lifecycle.status.blame import IGNORED_AFTER, IGNORED_FOR_ITS_OWN_AFTER
from closeknit.lifecycle.status.degraded import FIXED
from closeknit.lifecycle.status.pauses import is_between, later

DEFAULT_SCHEDULER = "default-scheduler"  # what the API server makes of a schedulerName that is not there


def since(attempt: Attempt, index: int) -> datetime | None:
    """Since when no scheduler has commented on the Pod of this node rank; `now` if the clocks disagree; None where one
    has, or the Pod is missing."""
    pod = attempt.pods[index]
    if pod is None or pod.node or pod.deletion_timestamp is not None or pod.phase not in {"", "Pending"}:
        return None
    if pod.condition("PodScheduled") is not None:
        return None
    now = attempt.subject.now
    found = later(pod.created, attempt.begun, now)
    return now - IGNORED_FOR_ITS_OWN_AFTER if found is None else found


def own_cause(attempt: Attempt, index: int) -> str | None:
    """What in the template may keep every scheduler silent about the Pod of a node rank, and what to do; None without
    such a cause."""
    template = attempt.template_of(attempt.booking.shares[index])
    name = template.get("schedulerName")
    if isinstance(name, str) and name not in {"", DEFAULT_SCHEDULER}:
        return (
            f"its template names the scheduler {short(name)}, which does not seem to run; run it, or leave "
            f"schedulerName out of the template; {FIXED}"
        )
    if template.get("resourceClaims"):
        return (
            "its template has ResourceClaims of its own, and a scheduler holds a Pod back without a word while one of "
            f"them is not there; create them, or leave them out of the template; {FIXED}"
        )
    return None


def told_at(attempt: Attempt) -> datetime | None:
    """When to report that no scheduler looks at the gang's Pods, or to check again; None where each was looked at."""
    waiting = [index for index, pod in enumerate(attempt.pods) if pod is not None and not pod.node]
    if not waiting:
        return None
    if attempt.begun is not None and is_between(attempt.begun, attempt.subject.now, attempt.begun + IGNORED_AFTER):
        return attempt.begun + IGNORED_AFTER  # no Pod is older than its attempt
    moments = [began + IGNORED_AFTER for index in waiting if (began := since(attempt, index)) is not None]
    return min(moments, default=None)


def words(attempt: Attempt) -> str:
    """The message that no scheduler looks at the gang's Pods, with what to do."""
    silent = [index for index, pod in enumerate(attempt.pods) if pod is not None and since(attempt, index) is not None]
    if making := _volume_being_made(attempt, silent):
        return making
    causes = (own_cause(attempt, index) for index in silent)
    cause = next(filter(None, causes), None) or _missing_domain(attempt)
    if cause is None:
        cause = "have an administrator see whether kube-scheduler runs; they start once it does"
    return f"no scheduler has looked at its Pods for {IGNORED_AFTER.total_seconds():.0f} s: {cause}"


def _volume_being_made(attempt: Attempt, silent: Iterable[int]) -> str | None:
    """The message that a scheduler waits silently for a requested volume; None where it does not."""
    for index in silent:
        pod, awaited = attempt.pods[index], volume_awaited(attempt, index)
        if pod is not None and awaited is not None:
            return volume_words(pod, awaited)
    return None


def volume_awaited(attempt: Attempt, index: int) -> Awaited | None:
    """The claim that the Pod of a node rank waits for, while its volume is made; None without one."""
    pod = attempt.pods[index]
    template = attempt.template_of(attempt.booking.shares[index])
    return None if pod is None else attempt.subject.cluster.volume_awaited(pod, template)


def volume_words(pod: Pod, awaited: Awaited) -> str:
    """The message about a Pod whose volume is being made."""
    return (
        f"Pod {pod.name} waits until the volume of PersistentVolumeClaim {short(awaited.claim)} is made for node "
        f"{short(awaited.node)}; kubectl describe pvc {short(awaited.claim)} tells how far that is"
    )


def _missing_domain(attempt: Attempt) -> str | None:
    """The message that the claims of a ComputeDomain may be missing, with what to do; None where the gang has no
    ComputeDomain."""
    gang = attempt.gang()
    if isinstance(gang, Lost) or not gang.uses_imex_channels:
        return None
    return (
        f"they wait for claims that NVIDIA's controller makes of the ComputeDomain {gang.service}; have an "
        f"administrator see whether it runs, or do without NVLink between nodes by {MNNVL}=0 in the template; {FIXED}"
    )
