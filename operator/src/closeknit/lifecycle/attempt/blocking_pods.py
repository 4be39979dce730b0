"""What blocks the Pods that a job needs now: its older ones, and placeholders."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from closeknit.api.objects import TrainingJob
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.objects.dra import ResourceClaim
from closeknit.cluster.pods.pod import Pod
from closeknit.launch.gang import Gang
from closeknit.lifecycle.attempt.own_pods import OwnPods, is_left_over, own_claim
from closeknit.lifecycle.status.pauses import lingers_from

SHOWN = 4  # of many
# All GPUs of the gang stand idle meanwhile. A checkpoint takes less; after a longer end the job is elsewhere.
LONGEST_WAIT = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Leftover:
    """A Pod or claim of the job that is being deleted, or a placeholder Pod of any job."""

    kind: str  # Pod | ResourceClaim | placeholder Pod
    name: str
    node: str = ""
    deletion_timestamp: str | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f" on node {self.node}" if self.node else "")


def leftovers(
    job: TrainingJob, children: OwnPods, cluster: Cluster, gang: Gang, missing: Collection[int]
) -> tuple[Leftover, ...]:
    """Own objects that hold GPUs of the gang, NICs of its nodes, or names of its missing Pods; and placeholder Pods on
    nodes of missing ones: a device plugin would give these other GPUs than it was foreseen to.

    Pods and claims of attempts before, and replaced ones, on nodes, or with GPUs, that the gang does not use are
    nothing to wait for: their node may be dead, and they may stay for ever.
    """
    uuids = {uuid for member in gang.members for uuid in member.uuids if uuid}
    unnamed = {member.node for member in gang.members if not all(member.uuids)}
    nodes = {member.node for member in gang.members}
    names = {(job.key.namespace, gang.name(gang.members[index])) for index in missing}
    ours = {gang.name(member) for member in gang.members}
    wanted = sorted({gang.members[index].node for index in missing})
    outlived = (pod for pod in children.live if pod.attempt == gang.attempt and pod.name not in ours)
    return (
        *(
            Leftover("Pod", pod.name, pod.node, pod.deletion_timestamp)
            for pod in (*children.before(gang.attempt), *outlived)
            if _holds(cluster, pod, uuids, nodes, unnamed)
        ),
        *(Leftover("ResourceClaim", claim.name) for claim in _claims(job, cluster, gang, uuids, nodes, names, ours)),
        *(
            Leftover("placeholder Pod", each.name if each.job == job.key else "of a job that waits", each.node)
            for node in wanted
            for each in cluster.capacity.placeholders_on(node)
        ),
    )


def stays_from(found: Iterable[Leftover], begun: datetime | None, now: datetime) -> datetime | None:
    """When one of them counts as stuck: half a minute after its grace period, or when the attempt, begun then, has
    waited too long. None where neither is known."""
    moments = [lingers_from(each.deletion_timestamp, now) for each in found if each.deletion_timestamp is not None]
    return min([*moments, *([] if begun is None else [begun + LONGEST_WAIT])], default=None)


def told(found: Sequence[Leftover]) -> str:
    """The message about what the job waits for."""
    shown = ", ".join(map(str, found[:SHOWN]))
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return f"waits until what is left of its Pods of before is gone: {shown}{more}"


def _holds(cluster: Cluster, pod: Pod, uuids: set[str], nodes: set[str], unnamed: set[str]) -> bool:
    """Whether a live Pod has GPUs of the gang, or may have: only its claim and the kubelet tell which it has."""
    if not pod.node:
        return pod.deletion_timestamp is None  # the scheduler binds nothing that is being deleted
    claim = own_claim(cluster, pod)
    given = cluster.devices.claimed(claim) if claim is not None and claim.devices else cluster.devices.reported(pod)
    if pod.node in unnamed or given is None or None in given or len(given) < pod.gpu_count:
        return pod.node in nodes
    return not uuids.isdisjoint(given)


def _claims(
    job: TrainingJob,
    cluster: Cluster,
    gang: Gang,
    uuids: set[str],
    nodes: set[str],
    names: set[tuple[str, str]],
    ours: set[str],
) -> Iterator[ResourceClaim]:
    for claim in cluster.claims_of(job.key):
        if claim.key in names:
            # Of a Pod that had the name before. A Pod that is made meanwhile would start on it, and lose it.
            if is_left_over(claim, job.key):
                yield claim
        elif (claim.attempt < gang.attempt or (claim.attempt == gang.attempt and claim.name not in ours)) and (
            not nodes.isdisjoint(cluster.devices.nodes_of_nics(claim))
            or (claim.devices and not uuids.isdisjoint(cluster.devices.claimed(claim)))
        ):
            yield claim
