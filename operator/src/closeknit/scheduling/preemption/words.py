"""The messages about jobs that make room, and what is left of them.

Jobs of the reader's own namespace are named, others are counted.
"""

from collections.abc import Sequence

from closeknit.cluster.booking.booking import AwaitedAttempt
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.objects.dra import ResourceClaim
from closeknit.cluster.pods.pod import Pod
from closeknit.placement.values.sentences import count, listed
from closeknit.scheduling.victims.victim import claims_left

NAMED = 3  # jobs that make room; more are counted


def holds(each: AwaitedAttempt, cluster: Cluster) -> bool:
    """Whether it has not made room yet."""
    held = cluster.booking_of(each.job)
    return held is not None and (held.uid, held.attempt) == (each.uid, each.attempt)


def remaining(each: AwaitedAttempt, cluster: Cluster) -> list[Pod]:
    """The Pods that are left of one."""
    return [
        pod
        for pod in cluster.pods_of(each.job)
        if pod.is_live and each.uid in pod.job_uids and (pod.attempt or 0) <= each.attempt
    ]


def given(each: AwaitedAttempt, cluster: Cluster) -> list[ResourceClaim]:
    """The claims that are left of one, with what they hold."""
    return [claim for claim in claims_left(each, cluster) if claim.devices or claim.nics]


def room_words(awaited: Sequence[AwaitedAttempt], namespace: str) -> str:
    """The message about who makes room, for a reader of this namespace."""
    own = [str(each.job) for each in awaited if each.job.namespace == namespace]
    named = own[:NAMED]
    if more := len(own) - len(named):
        named.append(count(more, "other job"))
    if others := len(awaited) - len(own):
        named.append("a job of another namespace" if others == 1 else f"{others} jobs of other namespaces")
    verb = "makes" if len(awaited) == 1 else "make"
    whose = "its" if len(awaited) == 1 else "their"
    if all(each.moves for each in awaited):
        verb = "moves" if len(awaited) == 1 else "move"
        return f"{listed(named, 'and')} {verb} elsewhere, which gives it room; it starts once {whose} Pods are gone"
    return f"{listed(named, 'and')} {verb} room for it, by priority; it starts once {whose} Pods are gone"


def words_now(awaited: Sequence[AwaitedAttempt], cluster: Cluster, namespace: str) -> str:
    """What it waits for; the first Pod that is left, and how many. Without any, the first claim."""
    left = [pod for each in awaited for pod in remaining(each, cluster)]
    if not left:
        claims = [claim for each in awaited for claim in given(each, cluster)]
        return "; left is ".join((room_words(awaited, namespace), *_claim_words(claims, namespace)))
    first = next((pod for pod in left if pod.namespace == namespace), left[0])
    told = f"Pod {namespace}/{first.name}" if first.namespace == namespace else "a Pod of another namespace"
    told += f" on node {first.node}" if first.node else ""
    more = f" and {count(len(left) - 1, 'more Pod')}" if len(left) > 1 else ""
    return f"{room_words(awaited, namespace)}; left {'is' if len(left) == 1 else 'are'} {told}{more}"


def _claim_words(claims: Sequence[ResourceClaim], namespace: str) -> tuple[str, ...]:
    """One of these, for a reader of this namespace; nothing where there is none."""
    own = next((claim for claim in claims if claim.namespace == namespace), None)
    if own is not None:
        return (f"ResourceClaim {namespace}/{own.name}",)
    return ("a ResourceClaim of another namespace",) if claims else ()
