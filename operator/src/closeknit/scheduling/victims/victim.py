"""Jobs that may have to make room, what each of them would lose, and the cluster without them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import ConditionType
from closeknit.cluster.booking.booking import AwaitedAttempt, Booking
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.objects.dra import ResourceClaim
from closeknit.cluster.pods.pod import Pod
from closeknit.cluster.store.watched_kinds import ObjectChange, Stream, change, pod_stream
from closeknit.lifecycle.attempt.own_pods import is_left_over, is_own, own_claim, own_claims
from closeknit.lifecycle.status.conditions import found, moment
from closeknit.lifecycle.status.pauses import LINGERS_AFTER, is_between, lingers_from

# What a restart costs beside what is done again: Pods that end with their grace period of 30 s, new ones, and a
# checkpoint that is read.
RESTART_COSTS = timedelta(minutes=2)


@dataclass(frozen=True, eq=False)  # no slots: its GPUs are counted once
class Victim:
    """A job that may have to make room."""

    key: JobKey
    job: TrainingJob
    booking: Booking
    priority: int
    lost_gpu_s: int
    """GPU-seconds since its run began, or since it got its GPUs if it does not run: what it may have to do again."""

    @property
    def awaited(self) -> AwaitedAttempt:
        """What its end frees."""
        return AwaitedAttempt(self.key, self.booking.uid, self.booking.attempt)

    @property
    def may_shrink(self) -> bool:
        """Whether it is elastic, so that it may go on with fewer GPUs: of two that lose as much it goes first."""
        elastic = self.job.spec.elastic
        return elastic is not None and elastic.min_gpus < self.booking.gpus

    @cached_property
    def gpus(self) -> Mapping[str, frozenset[int]]:
        """NVML indexes of the GPUs that it holds, by node."""
        held: dict[str, frozenset[int]] = {}
        for share in (*self.booking.shares, *self.booking.spares):
            if not share.lost:
                held[share.node] = held.get(share.node, frozenset()).union(share.gpus)
        return held


def victims(cluster: Cluster, below: int, now: datetime) -> list[Victim]:
    """Jobs of a lower priority that hold GPUs, those that lose least first: all but those that wait for others to go,
    and those that go anyway."""
    spared = {each.job for awaited in cluster.awaiting.values() for each in awaited}
    there: list[Victim] = []
    for key, job in cluster.jobs.items():
        if job.status.placement is None or key in spared or (priority := cluster.priority(job)) >= below:
            continue
        held = cluster.booking_of(key)
        if held is None or held.awaits or job.spec.suspend or job.metadata.deletion_timestamp is not None:
            continue
        there.append(Victim(key, job, held, priority, lost_gpu_s(job, held, now)))
    return sorted(there, key=lambda each: (each.lost_gpu_s, not each.may_shrink, each.priority, each.key))


def lost_gpu_s(job: TrainingJob, held: Booking, now: datetime) -> int:
    """GPU-seconds that a job may have to do again if it ends now."""
    told = (found(job.status.conditions, each) for each in (ConditionType.RUNNING, ConditionType.PLACED))
    since = next((each for each in told if each is not None and each.status == "True"), None)
    seconds = 0.0 if since is None else (now - moment(since.last_transition_time)).total_seconds()
    return max(0, int(seconds)) * sum(len(share.gpus) for share in held.shares if not share.lost)


def unbooked(job: TrainingJob) -> TrainingJob:
    """The job without its placement."""
    return job.model_copy(update={"status": job.status.model_copy(update={"placement": None})})


def gone(cluster: Cluster, job: TrainingJob) -> Iterator[ObjectChange]:
    """What changes once a job holds nothing any more: its booking, its Pods and their claims."""
    yield change(unbooked(job))
    pods = tuple(pod for pod in cluster.pods_of(job.key) if is_own(pod, job))
    yield from (ObjectChange(pod_stream(pod), pod.key, None) for pod in pods if pod.is_live)
    for claim in own_claims(job, pods, cluster):
        yield ObjectChange(Stream.RESOURCE_CLAIMS, claim.key, None)


def going(cluster: Cluster, now: datetime) -> Iterator[ObjectChange]:
    """What changes once the Pods of ended attempts are gone, but for those that outstay their grace period, once claims
    are collected whose Pods are over or gone, and once those jobs hold nothing any more all of whose Pods have
    succeeded."""
    for key, job in cluster.jobs.items():
        if _has_succeeded(job, cluster):
            yield from gone(cluster, job)
        for claim in cluster.claims_of(key):
            if _is_about_to_go(claim, key, cluster, now):
                yield ObjectChange(Stream.RESOURCE_CLAIMS, claim.key, None)
        if not job.status.attempts:
            continue
        for pod in cluster.pods_of(key):
            if is_own(pod, job) and _is_going(pod, job, now):
                yield from _ended(pod, cluster)


def going_with_their_jobs(cluster: Cluster, now: datetime) -> Iterator[ObjectChange]:
    """What changes once those Pods are gone that are being deleted with their job, which is no more; likewise."""
    for key, pods in cluster.pods_by_job.items():
        if key in cluster.jobs or key in cluster.invalid_jobs:
            continue
        for pod in pods:
            if pod.deletion_timestamp is not None and now < lingers_from(pod.deletion_timestamp, now):
                yield from _ended(pod, cluster)


def leaving(cluster: Cluster, awaited: Iterable[AwaitedAttempt]) -> Iterator[ObjectChange]:
    """What changes once these have made room: their Pods are gone, however long they stay, and their bookings. What one
    of them has got since it keeps."""
    for each in awaited:
        job, held = cluster.jobs.get(each.job), cluster.booking_of(each.job)
        if job is not None and held is not None and (held.uid, held.attempt) == (each.uid, each.attempt):
            yield from gone(cluster, job)
            continue
        for pod in cluster.pods_of(each.job):
            if pod.is_live and each.uid in pod.job_uids and (pod.attempt or 0) <= each.attempt:
                yield ObjectChange(pod_stream(pod), pod.key, None)
        for claim in claims_left(each, cluster):
            yield ObjectChange(Stream.RESOURCE_CLAIMS, claim.key, None)


def claims_left(each: AwaitedAttempt, cluster: Cluster) -> list[ResourceClaim]:
    """Claims for Pods of one that has made room. Such a claim outlives its Pod: it is collected after it."""
    claims = (claim for claim in cluster.claims_of(each.job) if claim.attempt <= each.attempt)
    pods = ((claim, cluster.pods.get(claim.key)) for claim in claims if not claim.is_shared)
    return [claim for claim, pod in pods if is_left_over(claim, each.job) and (pod is None or each.uid in pod.job_uids)]


def _ended(pod: Pod, cluster: Cluster) -> Iterator[ObjectChange]:
    """What changes once a Pod is gone, and its claim with it."""
    claim = own_claim(cluster, pod)
    if pod.is_live:
        yield ObjectChange(pod_stream(pod), pod.key, None)
    if claim is not None and not claim.is_shared:
        yield ObjectChange(Stream.RESOURCE_CLAIMS, claim.key, None)


def _is_about_to_go(claim: ResourceClaim, job: JobKey, cluster: Cluster, now: datetime) -> bool:
    """Whether a claim for a Pod of the job gives back what it holds: its Pod is over, or gone."""
    pod = cluster.pods.get(claim.key)
    if claim.is_shared or (pod is not None and pod.is_live) or not is_left_over(claim, job):
        return False
    return claim.deletion_timestamp is None or now < lingers_from(claim.deletion_timestamp, now)


def _has_succeeded(job: TrainingJob, cluster: Cluster) -> bool:
    """Whether all Pods of a job that holds GPUs have ended with success, as its status is about to say."""
    pods = cluster.pods_of(job.key) if job.status.placement is not None else ()
    held = cluster.booking_of(job.key) if any(pod.phase == "Succeeded" for pod in pods) else None
    if held is None:
        return False
    over = {
        held.position(pod.child)
        for pod in pods
        if pod.child is not None and pod.phase == "Succeeded" and pod.child.attempt == held.attempt and is_own(pod, job)
    }
    return all(share.succeeded or at in over for at, share in enumerate(held.shares))


def _is_going(pod: Pod, job: TrainingJob, now: datetime) -> bool:
    """Whether a Pod of the job is about to be gone, for its attempt has ended."""
    ended = (each for each in reversed(job.status.attempts) if each.number == pod.attempt and not each.in_place)
    last = next(ended, None)
    if last is None or (pod.deletion_timestamp is not None and now >= lingers_from(pod.deletion_timestamp, now)):
        return False
    at = moment(last.ended)
    return is_between(at, now, at + timedelta(seconds=pod.grace_s) + LINGERS_AFTER)
