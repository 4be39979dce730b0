"""Whether the Pods really got the planned GPUs."""

from collections.abc import Sequence

from closeknit.api.names import ConditionType
from closeknit.api.trainingjob_status import Actual, Binding, NodeAssignment, PlacementStatus
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.pod import Pod
from closeknit.lifecycle.children import own_claim
from closeknit.lifecycle.conditions import Observation


def verified(cluster: Cluster, placement: PlacementStatus, pods: Sequence[Pod]) -> tuple[PlacementStatus, Observation]:
    """The placement with `actual` filled in, and what that means for the job. Pods are by node rank.

    A fact that is no longer to be had (a finished Pod's claim has no allocation) does not take back what was found.
    """
    nodes = [_checked(cluster, node, pod) for node, pod in zip(placement.nodes, pods, strict=True)]
    wrong = [node.name for node in nodes if node.actual is Actual.MISMATCH]
    unknown = [node.name for node in nodes if node.actual is Actual.UNKNOWN]
    checked = placement.model_copy(update={"nodes": nodes})
    kind = ConditionType.PLACEMENT_VERIFIED
    if wrong:
        message = f"other GPUs than planned on {', '.join(wrong[:8])}"
        return checked, Observation(kind, False, "Mismatch", message)
    if unknown:
        message = f"nobody has told which GPUs the Pods got on {', '.join(unknown[:8])}"
        return checked, Observation(kind, None, "NotReported", message)
    return checked, Observation(kind, True, "Verified", "every Pod has the planned GPUs")


def _checked(cluster: Cluster, node: NodeAssignment, pod: Pod) -> NodeAssignment:
    actual = _actual(cluster, node, pod)
    if actual is Actual.UNKNOWN and node.actual is not None:
        return node
    return node if actual is node.actual else node.model_copy(update={"actual": actual})


def _actual(cluster: Cluster, node: NodeAssignment, pod: Pod) -> Actual:
    """By the strongest witness: the claim's allocation, the kubelet's report, or that the node has no other GPUs."""
    if not pod.node:
        return Actual.UNKNOWN
    if pod.node != node.name:
        return Actual.MISMATCH
    claim = own_claim(cluster, pod) if node.binding is Binding.DRA else None
    got = cluster.claimed_uuids(claim) if claim is not None and claim.devices else cluster.reported_uuids(pod)
    if got is not None and pod.gpus and None not in got:
        return Actual.VERIFIED if sorted(filter(None, got)) == sorted(pod.gpus) else Actual.MISMATCH
    return Actual.VERIFIED if node.binding is Binding.WHOLE_NODE else Actual.UNKNOWN
