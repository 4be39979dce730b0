"""What to ask autoscalers for, for jobs that wait for nodes, and what to take back."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from closeknit.api.names import PLACEHOLDER_PODS, PROVISIONING_CLASS_ANNOTATION, JobKey
from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import PendingReason
from closeknit.api.trainingjob_status import Pending
from closeknit.cluster.booking.job import is_whole
from closeknit.cluster.capacity.placeholder import CapacityRefusal, FirstAsk, Placeholder, PlaceholderName
from closeknit.cluster.capacity.provisioning import ProvisioningRequest
from closeknit.cluster.cluster import Cluster
from closeknit.launch.gang import Manifest
from closeknit.lifecycle.capacity.capacity_manifests import (
    CapacityAsk,
    placeholder,
    placeholder_names,
    provisioning_ask,
)
from closeknit.lifecycle.capacity.gang_shape import GangShape, NodeGroup, gang_shape
from closeknit.lifecycle.capacity.placeholder_news import MOST_PLACEHOLDERS, placeholder_news
from closeknit.lifecycle.status.capacity_words import ASKED_AGAIN, PLACEHOLDERS_STAY
from closeknit.lifecycle.status.conditions import moment, timestamp
from closeknit.lifecycle.status.pauses import over_at
from closeknit.lifecycle.status.stored_job import is_finished
from closeknit.lifecycle.transitions.runs import WAITS_FOR_ALL
from closeknit.placement.gang.cache import Tables
from closeknit.placement.values.sentences import count

# A job that starts within seconds needs no node, and GPUs that come free do so all the time.
ASKED_AFTER = timedelta(seconds=30)
MOST_REQUESTS = 4  # of all jobs together: an autoscaler works at few at a time, and every one costs it a simulation
MOST_SEARCHES = 16  # of one look: each is a question to placement, on the worker that decides
NEVER = "Never"
QueuePlaceOf = Callable[[Cluster, TrainingJob], tuple[Any, ...]]
"""Sorts jobs as the queue."""
_FOR_NODES = frozenset(
    {
        PendingReason.INSUFFICIENT_GPUS,
        PendingReason.GPUS_NOT_OFFERED,  # a node that has just come is so until its device plugin runs
        PendingReason.INSUFFICIENT_RESOURCES,
        PendingReason.NO_NVLINK_ISLAND,
        PendingReason.NO_DOMAIN,
        PendingReason.NO_MATCHING_GPU,
        PendingReason.BEHIND_RESERVATION,
    }
)


@dataclass(frozen=True, slots=True)
class CapacityPolicy:
    """What an administrator lets be asked for."""

    provisioning_class: str = NEVER
    """Of jobs that say nothing themselves."""
    node_groups: tuple[NodeGroup, ...] = ()
    placeholder_image: str = ""
    """Of placeholder Pods, with Python in it; empty: none are made."""


NOTHING_ASKED = CapacityPolicy()


class PlaceholderAsk(NamedTuple):
    """Placeholder Pods of one job that are not there."""

    job: JobKey
    job_uid: str
    generation: int
    pods: tuple[Manifest, ...]


class CapacityNews(NamedTuple):
    """What to write now, and what to remember."""

    missing: tuple[CapacityAsk, ...] = ()
    gone: tuple[ProvisioningRequest, ...] = ()
    placeholders: tuple[PlaceholderAsk, ...] = ()
    placeholders_gone: tuple[Placeholder, ...] = ()
    notes: tuple[CapacityRefusal | FirstAsk, ...] = ()
    """New ones, without any write."""
    forgotten: tuple[JobKey, ...] = ()
    """Jobs of which a note holds no longer."""
    hopeless: tuple[str, ...] = ()
    """Uids of jobs that no node would help, as far as was asked: those first of which that was asked longest ago."""


@dataclass(slots=True)
class _Asked:
    """What is asked for now, as far as it is read."""

    jobs: set[str] = field(default_factory=set)
    """Uids of the jobs for which something is asked, or is being taken back."""
    kept: int = 0
    """For how many of them it stays, and something may come of it."""
    gone: list[ProvisioningRequest] = field(default_factory=list)
    placeholders: list[PlaceholderAsk] = field(default_factory=list)
    placeholders_gone: list[Placeholder] = field(default_factory=list)
    notes: list[CapacityRefusal | FirstAsk] = field(default_factory=list)


def capacity_news(
    cluster: Cluster,
    tables: Tables,
    policy: CapacityPolicy,
    now: datetime,
    place: QueuePlaceOf,
    hopeless: Sequence[str] = (),
) -> CapacityNews:
    """What to ask for and to take back: ProvisioningRequests where they are served, and placeholder Pods for jobs of
    that class. Jobs that come first in the queue ask first, MOST_REQUESTS at a time: `place` is where each stands.
    Those that were found `hopeless` at the look before come last and in turn, so that no number of them holds up the
    others."""
    notes = {each.job: each for each in cluster.capacity.notes}
    forgotten = tuple(key for key, note in notes.items() if not _holds(note, cluster, policy, now))
    for key in forgotten:
        del notes[key]
    asked = _Asked()
    _read_requests(cluster, policy, now, asked)
    _read_placeholders(cluster, policy, now, notes, asked)
    missing: list[CapacityAsk] = []
    found: dict[str, GangShape | None] = {}
    left = MOST_REQUESTS - asked.kept
    turns = {uid: turn for turn, uid in enumerate(hopeless)}
    in_order = sorted(_waiting(cluster, policy, now), key=partial(place, cluster))
    waiting = {job.metadata.uid or "": job for job in in_order}
    for uid in sorted(waiting, key=lambda uid: turns.get(uid, -1)):
        job = waiting[uid]
        note = notes.get(job.key)
        if left <= 0 or len(found) >= MOST_SEARCHES:
            break
        if uid in asked.jobs or isinstance(note, CapacityRefusal):
            continue
        if note is not None and over_at(note.since, PLACEHOLDERS_STAY, now) <= now:
            asked.notes.append(_spent(job, (), now))
            continue
        found[uid] = shape = gang_shape(job, cluster, policy.node_groups, tables)
        if shape is None:  # no node that is known would help it: those behind it ask meanwhile
            continue
        left -= 1
        if class_of(job, policy) != PLACEHOLDER_PODS:
            missing.append(provisioning_ask(job, shape, class_of(job, policy)))
        elif shape.pods > MOST_PLACEHOLDERS:
            words = f"its gang needs {shape.pods} nodes, and at most {MOST_PLACEHOLDERS} placeholder Pods are made"
            asked.notes.append(refusal_of(job, words, now))
        else:
            names = placeholder_names(job, shape, PLACEHOLDER_PODS)
            asked.placeholders.append(_placeholder_ask(job, shape, names, policy))
            if note is None:
                asked.notes.append(_first_ask(job, timestamp(now)))
    still = (uid for uid in hopeless if uid in waiting and uid not in found)
    return CapacityNews(
        tuple(missing),
        tuple(asked.gone),
        tuple(asked.placeholders),
        tuple(asked.placeholders_gone),
        tuple(asked.notes),
        forgotten,
        (*still, *(uid for uid, shape in found.items() if shape is None)),
    )


def class_of(job: TrainingJob, policy: CapacityPolicy) -> str:
    """The class by which a job asks: its own word, or its administrator's; NEVER for one that does not ask."""
    return job.metadata.annotations.get(PROVISIONING_CLASS_ANNOTATION) or policy.provisioning_class


def waits_for_nodes(job: TrainingJob) -> bool:
    """Whether more nodes may end the job's wait."""
    pending = job.status.pending
    is_for_nodes = pending is not None and pending.reason in _FOR_NODES and job.status.placement is None
    return is_for_nodes and not (job.spec.suspend or is_finished(job) or job.metadata.deletion_timestamp is not None)


def refusal_of(job: TrainingJob | PlaceholderAsk | CapacityAsk, words: str, now: datetime) -> CapacityRefusal:
    """A refusal that holds until it is asked again."""
    until = timestamp(now + ASKED_AGAIN)
    if isinstance(job, PlaceholderAsk | CapacityAsk):
        return CapacityRefusal(job.job, job.job_uid, job.generation, words, until)
    return CapacityRefusal(job.key, job.metadata.uid or "", job.metadata.generation, words, until)


def _holds(note: CapacityRefusal | FirstAsk, cluster: Cluster, policy: CapacityPolicy, now: datetime) -> bool:
    job = cluster.jobs.get(note.job)
    if job is None or not note.is_of(job) or not waits_for_nodes(job):
        return False
    if isinstance(note, FirstAsk):
        return class_of(job, policy) == PLACEHOLDER_PODS and bool(policy.placeholder_image)
    return class_of(job, policy) != NEVER and now < moment(note.until)


def _first_ask(job: TrainingJob, since: str) -> FirstAsk:
    return FirstAsk(job.key, job.metadata.uid or "", job.metadata.generation, since)


def _spent(job: TrainingJob, there: Sequence[Placeholder], now: datetime) -> CapacityRefusal:
    """That nothing has come of the placeholder Pods of a job, those that are there and those that were."""
    bound = sum(bool(each.node) for each in there)
    pods = count(len(there), "placeholder Pod") if there else "placeholder Pods"
    where = f", {bound} of them on a node," if there else ""
    minutes = int(PLACEHOLDERS_STAY.total_seconds()) // 60
    return refusal_of(job, f"{pods} stood for it for {minutes} minutes{where} and it does not fit", now)


def _read_requests(cluster: Cluster, policy: CapacityPolicy, now: datetime, asked: _Asked) -> None:
    for found in cluster.capacity.requests if cluster.capacity.is_served else ():
        job = cluster.jobs.get(found.job)
        if job is None or found.is_going or job.metadata.uid != found.job_uid:
            continue
        is_spent = found.is_over and over_at(found.answered, ASKED_AGAIN, now) <= now
        asked.jobs.add(found.job_uid)
        is_of_now = class_of(job, policy) == found.class_name and found.generation == str(job.metadata.generation)
        if is_spent or not waits_for_nodes(job) or not is_of_now:
            asked.gone.append(found)
        else:
            asked.kept += not found.is_over


def _read_placeholders(
    cluster: Cluster,
    policy: CapacityPolicy,
    now: datetime,
    notes: Mapping[JobKey, CapacityRefusal | FirstAsk],
    asked: _Asked,
) -> None:
    """Those that stay, those that go, and those that are to be made again."""
    by_job: dict[tuple[JobKey, str], list[Placeholder]] = {}
    for each in cluster.capacity.placeholders:
        by_job.setdefault((each.job, each.job_uid), []).append(each)
    for (key, uid), there in by_job.items():
        asked.jobs.add(uid)
        job, note = cluster.jobs.get(key), notes.get(key)
        one = next((each for each in there if not each.is_going), there[0])
        shape = GangShape(one.parts.of, one.gpus, "", one.resource)
        names = [] if job is None or job.metadata.uid != uid else placeholder_names(job, shape, PLACEHOLDER_PODS)
        is_asked = (
            job is not None
            and not isinstance(note, CapacityRefusal)
            and waits_for_nodes(job)
            and class_of(job, policy) == PLACEHOLDER_PODS
            and bool(names)
            and one.parts.is_beside(names[0])
            and bool(policy.placeholder_image)
        )
        since = note.since if isinstance(note, FirstAsk) else min(each.created for each in there)
        is_spent = is_asked and over_at(since, PLACEHOLDERS_STAY, now) <= now
        if job is not None and is_spent:
            asked.notes.append(_spent(job, there, now))
        if job is None or not is_asked or is_spent:
            asked.placeholders_gone += [each for each in there if not each.is_going]
            continue
        asked.kept += 1
        if note is None:
            asked.notes.append(_first_ask(job, since))
        news = placeholder_news(there, names[0], cluster)
        asked.placeholders_gone += news.gone
        if news.missing and is_whole(job):
            asked.placeholders.append(_placeholder_ask(job, shape, news.missing, policy))


def _placeholder_ask(
    job: TrainingJob, shape: GangShape, names: Sequence[PlaceholderName], policy: CapacityPolicy
) -> PlaceholderAsk:
    pods = tuple(placeholder(job, shape, name, policy.placeholder_image) for name in names)
    return PlaceholderAsk(job.key, job.metadata.uid or "", job.metadata.generation, pods)


def _waiting(cluster: Cluster, policy: CapacityPolicy, now: datetime) -> Iterator[TrainingJob]:
    """Jobs that may ask now, in no order."""
    return (
        job
        for job in cluster.jobs.values()
        if waits_for_nodes(job)
        and _is_possible(class_of(job, policy), cluster, policy)
        and job.metadata.uid
        and is_whole(job)
        and job.status.pending is not None
        and _asks_from(job, job.status.pending) <= now
    )


def _is_possible(class_name: str, cluster: Cluster, policy: CapacityPolicy) -> bool:
    if class_name == PLACEHOLDER_PODS:
        return bool(policy.placeholder_image)
    return class_name != NEVER and cluster.capacity.is_served


def _asks_from(job: TrainingJob, pending: Pending) -> datetime:
    """When a job that waits asks. One that may start with fewer GPUs asks once it could have: while it runs with them,
    nothing is asked for it, and what was asked before is taken back."""
    ready = moment(pending.since) + ASKED_AFTER
    if job.spec.elastic is None or job.spec.elastic.min_gpus == job.spec.gpus:
        return ready
    return max(ready, moment(pending.queued_since or pending.since) + WAITS_FOR_ALL + ASKED_AFTER)
