"""A job that holds GPUs keeps them."""

from datetime import datetime

from closeknit.api.objects import TrainingJob
from closeknit.cluster.booking.booking import Booking
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.pods.pod import Pod
from closeknit.lifecycle.attempt.shared_claims import shared_claims
from closeknit.lifecycle.failures.kept_shares import fitness
from closeknit.lifecycle.verdict import Keep
from closeknit.scheduling.policy.policy_context import Walk
from closeknit.scheduling.queue.entries import Case, Outcome
from closeknit.scheduling.queue.room import Room


def held(case: Case, room: Room, walk: Walk) -> Outcome | None:
    """The verdict to keep the GPUs that the job holds."""
    booking = room.cluster.booking_of(case.key)
    if booking is None:
        return None
    if case.key in walk.memory.busy:  # its Pods may come one by one, and nothing is done about them yet
        return Outcome(Keep(booking), is_settled=False)
    uid, attempt = case.job.metadata.uid, booking.attempt
    there = {
        booking.position(child): pod
        for pod in case.pods
        if pod.deletion_timestamp is None
        and (child := pod.child) is not None
        and child.attempt == attempt
        and uid in pod.job_uids
    }
    is_whole = all(index in there or share.succeeded for index, share in enumerate(booking.shares))
    if is_whole and not any(map(_has_failed, there.values())):
        return Outcome(Keep(booking))
    return Outcome(Keep(booking, is_fit_again(case.job, booking, room.cluster, walk.now)), is_settled=False)


def _has_failed(pod: Pod) -> bool:
    """Whether a Pod, or a container that may decide its rank's end, has failed, so that its gang may start again."""
    return pod.phase == "Failed" or any(each.exit_code and not each.init for each in pod.containers)


def is_fit_again(job: TrainingJob, held: Booking, cluster: Cluster, now: datetime) -> bool:
    """Whether the booked GPUs have no other holder, and their nodes are still fit for new Pods of the job."""
    if shared_claims(job, held, cluster):
        return False
    is_fit = fitness(job, cluster, now)
    return all(is_fit(share) for share in held.shares)
