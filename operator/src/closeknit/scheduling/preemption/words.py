"""The messages about jobs that make room, and what is left of them."""

from collections.abc import Sequence

from closeknit.cluster.booking.booking import AwaitedAttempt
from closeknit.cluster.cluster import Cluster
from closeknit.placement.values.sentences import count, listed

NAMED = 3  # jobs that make room; more are counted


def holds(each: AwaitedAttempt, cluster: Cluster) -> bool:
    """Whether it has not made room yet."""
    held = cluster.booking_of(each.job)
    return held is not None and (held.uid, held.attempt) == (each.uid, each.attempt)


def remaining(each: AwaitedAttempt, cluster: Cluster) -> list[str]:
    """The Pods that are left of one."""
    return [
        f"Pod {each.job.namespace}/{pod.name}" + (f" on node {pod.node}" if pod.node else "")
        for pod in cluster.pods_of(each.job)
        if pod.is_live and each.uid in pod.job_uids and (pod.attempt or 0) <= each.attempt
    ]


def room_words(awaited: Sequence[AwaitedAttempt]) -> str:
    """The message about who makes room."""
    named = [str(each.job) for each in awaited[:NAMED]]
    if more := len(awaited) - len(named):
        named.append(count(more, "other job"))
    verb = "makes" if len(awaited) == 1 else "make"
    whose = "its" if len(awaited) == 1 else "their"
    return f"{listed(named, 'and')} {verb} room for it, by priority; it starts once {whose} Pods are gone"


def words_now(awaited: Sequence[AwaitedAttempt], cluster: Cluster) -> str:
    """What it waits for; the first Pod that is left, and how many."""
    left = [pod for each in awaited for pod in remaining(each, cluster)]
    if not left:
        return room_words(awaited)
    more = f" and {count(len(left) - 1, 'more Pod')}" if len(left) > 1 else ""
    return f"{room_words(awaited)}; left {'is' if len(left) == 1 else 'are'} {left[0]}{more}"
