"""A job's own Pods and claims, as opposed to those that only have their names."""

from collections.abc import Sequence
from dataclasses import dataclass

from closeknit.api.names import JobKey, Role, child_name
from closeknit.api.objects import TrainingJob
from closeknit.cluster.booking.booking import Booking
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.objects.dra import ResourceClaim
from closeknit.cluster.objects.meta import owner_of
from closeknit.cluster.pods.pod import Pod


@dataclass(frozen=True, slots=True)
class Taken:
    """A child's name that another owner has."""

    kind: str  # Pod | ResourceClaim
    name: str
    owner: str  # for people


@dataclass(frozen=True, slots=True)
class OwnPods:
    """The job's own Pods, by name. A Pod is its own if its owner reference has the job's uid."""

    own: tuple[Pod, ...]

    def of(self, held: Booking) -> dict[int, Pod]:
        """Those of a booking by the positions of their shares, as their names tell."""
        named = ((pod.child, pod) for pod in self.own)
        return {
            held.position(child): pod for child, pod in named if child is not None and child.attempt == held.attempt
        }

    def before(self, attempt: int) -> tuple[Pod, ...]:
        """Pods of earlier attempts that still hold resources."""
        return tuple(pod for pod in self.own if pod.is_live and (pod.attempt is None or pod.attempt < attempt))

    def outlived(self, held: Booking) -> tuple[Pod, ...]:
        """Pods of the booking's attempt in whose place is another one, or is to be: their nodes are lost."""
        places = {at: share.lost for at, share in enumerate(held.shares)}
        return tuple(
            pod
            for pod in self.own
            if pod.child is not None
            and pod.child.attempt == held.attempt
            and places.get(held.position(pod.child), True)
        )

    @property
    def live(self) -> tuple[Pod, ...]:
        """Pods that still hold resources, those being deleted included."""
        return tuple(pod for pod in self.own if pod.is_live)


def children(job: TrainingJob, cluster: Cluster) -> OwnPods:
    """The job's children, finished Pods included."""
    return OwnPods(tuple(pod for pod in cluster.pods_of(job.key) if is_own(pod, job)))


def own_claim(cluster: Cluster, pod: Pod) -> ResourceClaim | None:
    """The claim made for this Pod; None where it has none yet, or another's claim has its name."""
    claim = cluster.claims.get(pod.key)
    return claim if claim is not None and _owned_by(claim, pod) else None


def own_claims(job: TrainingJob, own: Sequence[Pod], cluster: Cluster) -> tuple[ResourceClaim, ...]:
    """Claims made for Pods of the job, `own`, and for its Pods that are gone and not collected yet, except those that
    others use, too: these do not go with the job's Pods."""
    return tuple(
        claim
        for claim in cluster.claims_of(job.key)
        if not claim.is_shared
        and (
            any(_owned_by(claim, pod) for pod in own if pod.key == claim.key)
            or (claim.key not in cluster.pods and is_left_over(claim, job.key))
        )
    )


def taken(job: TrainingJob, attempt: int, workers: int, cluster: Cluster) -> Taken | None:
    """The first name of an attempt of so many workers that another owner has, as far as the snapshot shows.

    Services and others' finished Pods are not in it: of those the API server tells when the name is used.
    """
    servers = job.spec.parameter_servers.replicas if job.spec.parameter_servers else 0
    members = [*((Role.WORKER, index) for index in range(workers))]
    members += [(Role.PARAMETER_SERVER, index) for index in range(servers)]
    for role, index in members:
        key = (job.key.namespace, child_name(job.metadata.name, attempt, role, index))
        pod = cluster.pods.get(key)
        if pod is not None and not is_own(pod, job):
            return Taken("Pod", pod.name, owner_of(pod.owners))
        claim = cluster.claims.get(key)
        if claim is not None and not (pod is not None and _owned_by(claim, pod)) and not is_left_over(claim, job.key):
            return Taken("ResourceClaim", claim.name, owner_of(claim.owners))
    return None


def is_own(pod: Pod, job: TrainingJob) -> bool:
    """Whether the job made the Pod."""
    return job.metadata.uid in pod.job_uids


def is_left_over(claim: ResourceClaim, job: JobKey) -> bool:
    """Whether it is a claim for a Pod of the job: where that is gone it is about to be collected."""
    return claim.job == job and any(owner.kind == "Pod" and owner.name == claim.name for owner in claim.owners)


def _owned_by(claim: ResourceClaim, pod: Pod) -> bool:
    return any(owner.kind == "Pod" and owner.uid == pod.uid for owner in claim.owners)
