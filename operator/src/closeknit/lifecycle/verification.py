"""Whether the Pods really got the planned GPUs."""

from collections.abc import Sequence
from dataclasses import replace

from closeknit.api.names import ConditionReason, ConditionType
from closeknit.api.trainingjob_status import Actual, Binding
from closeknit.cluster.booking import Share
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.pod import Pod
from closeknit.lifecycle.children import own_claim
from closeknit.lifecycle.conditions import Observation
from closeknit.lifecycle.gangs import uuids


def verified(
    cluster: Cluster, shares: Sequence[Share], pods: Sequence[Pod | None]
) -> tuple[tuple[Share, ...], Observation]:
    """The shares with `actual` filled in, and what that means for the job. Pods are by node rank,
    None for one that is over and gone.

    A fact that is no longer to be had (a finished Pod's claim has no allocation) does not take back what was found.
    """
    checked = tuple(_checked(cluster, share, pod) for share, pod in zip(shares, pods, strict=True))
    wrong = [share.node for share in checked if share.actual is Actual.MISMATCH]
    unknown = [share.node for share in checked if share.actual is Actual.UNKNOWN]
    kind = ConditionType.PLACEMENT_VERIFIED
    if wrong:
        message = f"other GPUs than planned on {', '.join(wrong[:8])}"
        return checked, Observation(kind, False, ConditionReason.MISMATCH, message)
    if unknown:
        message = f"nobody has told which GPUs the Pods got on {', '.join(unknown[:8])}"
        return checked, Observation(kind, None, ConditionReason.NOT_REPORTED, message)
    return checked, Observation(kind, True, ConditionReason.VERIFIED, "every Pod has the planned GPUs")


def is_mismatched(cluster: Cluster, shares: Sequence[Share], pods: Sequence[Pod | None]) -> bool:
    """Whether `verified` would tell of other GPUs than planned: copies no share, for it is asked whenever a Pod of a
    starting gang changes."""
    return any(
        (share.actual if pod is None else _found(cluster, share, pod)) is Actual.MISMATCH
        for share, pod in zip(shares, pods, strict=True)
    )


def _checked(cluster: Cluster, share: Share, pod: Pod | None) -> Share:
    actual = share.actual if pod is None else _found(cluster, share, pod)
    return share if actual is share.actual else replace(share, actual=actual)


def _found(cluster: Cluster, share: Share, pod: Pod) -> Actual:
    actual = _actual(cluster, share, pod)
    return share.actual if actual is Actual.UNKNOWN and share.actual is not None else actual


def _actual(cluster: Cluster, share: Share, pod: Pod) -> Actual:
    """By the strongest witness: the claim's allocation, the kubelet's report, or that the node has no other GPUs. They
    are compared with the booking, for what the Pod says of itself its namespace may have written."""
    if not pod.node:
        return Actual.UNKNOWN
    if pod.node != share.node:
        return Actual.MISMATCH
    claim = own_claim(cluster, pod) if share.binding is Binding.DRA else None
    got = cluster.claimed_uuids(claim) if claim is not None and claim.devices else cluster.reported_uuids(pod)
    if got is not None and None not in got:
        view = cluster.nodes.get(share.node)
        planned = None if view is None else uuids(view, share)
        if planned is not None and all(planned):
            return Actual.VERIFIED if sorted(filter(None, got)) == sorted(planned) else Actual.MISMATCH
    return Actual.VERIFIED if share.binding is Binding.WHOLE_NODE else Actual.UNKNOWN
