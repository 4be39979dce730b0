"""What the operator's loop would decide next for one job, from objects in a file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import PendingReason
from closeknit.api.trainingjob_status import Pending, PlacementStatus, TrainingJobStatus
from closeknit.cli.plan.after_a_wait import after_a_wait
from closeknit.cli.plan.supposed import NOTHING, Supposed
from closeknit.cluster.booking.booking import assignments, booking, names
from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.job_volumes import NO_VOLUMES, sources
from closeknit.cluster.objects.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from closeknit.cluster.store.watched_kinds import ClusterObject, ObjectChange, Stream, pod_stream
from closeknit.launch.environment.environment import container_environment, environment
from closeknit.launch.environment.nccl import NVLS
from closeknit.launch.gang import Gang
from closeknit.launch.network import Net
from closeknit.lifecycle.attempt.launched_gang import gang
from closeknit.lifecycle.attempt.own_pods import children
from closeknit.lifecycle.booking.booked_placement import assumed
from closeknit.lifecycle.booking.booking_words import lent_words
from closeknit.lifecycle.restart.lemons import lemons_of
from closeknit.lifecycle.status.degraded import Degradation, degradation
from closeknit.lifecycle.status.pending import traits
from closeknit.lifecycle.status.preference import preference, unknown_preference
from closeknit.lifecycle.status.stored_job import is_finished
from closeknit.lifecycle.verdict import Book
from closeknit.lifecycle.writes.denial_words import unknown_class_words
from closeknit.placement.allreduce.nvls import planned
from closeknit.placement.fragmentation import Fragmentation, fragmentation
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place, place
from closeknit.placement.ranks.coordinates import Coordinates, coordinates
from closeknit.placement.suggestions.changes import Alternative, nearest_changes
from closeknit.placement.values.placement import NoFit
from closeknit.placement.values.request import Request, request
from closeknit.placement.values.sentences import count
from closeknit.scheduling.decision import decide
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.policy.backlog import backlog, contender
from closeknit.scheduling.queue.entries import Schedule
from closeknit.scheduling.reservation.patience import patient

_STORAGE = (PersistentVolumeClaim, PersistentVolume, StorageClass)
NOT_ASKED = (
    "what quotas, Pod Security and other admission say to its Pods, and whether what they name is there; without "
    "--cluster the API server is asked"
)
# Stands for now where no agent has told its time: then nothing is stale, and no answer depends on the moment.
NO_CLOCK = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank of the gang."""

    rank: int
    node: str
    gpu: int
    """NVML index on its node."""
    uuid: str
    coordinates: Coordinates


@dataclass(frozen=True, slots=True)
class HeldAlready:
    """What a job of that name holds in the cluster already."""

    nodes: tuple[str, ...]
    """Of its workers, in rank order."""
    gpus: int
    is_same: bool
    """Whether its spec is that of the file."""

    def __str__(self) -> str:
        holds = f"{count(self.gpus, 'GPU')} on {count(len(self.nodes), 'node')}, {names(self.nodes)}"
        return f"is placed already ({holds}), with {'this' if self.is_same else 'another'} spec"

    def wire(self) -> dict[str, Any]:
        """As programs read it."""
        return {"nodes": list(self.nodes), "gpus": self.gpus, "sameSpec": self.is_same}


@dataclass(frozen=True, slots=True)
class Placed:
    """The job fits here."""

    job: JobKey
    placement: PlacementStatus
    ranks: tuple[Rank, ...]
    environment: Mapping[str, str]
    """Of node rank 0's trainer, the user's own variables included."""
    nvls_gb_s: float | None
    """Bus bandwidth that NCCL would plan with NVSwitch multicast, which no prediction counts; None where it could have
    none, or nothing faster than what is predicted."""
    waits_first: str | None
    """What a job that is still to be submitted would wait for before it takes this, and how long at most; None where it
    takes it at once."""
    over_tcp: str | None
    """Why ranks of different nodes talk over TCP; None where they do not, or are on one node."""
    lacks: Degradation | None
    """What the gang has to do without."""
    warnings: tuple[str, ...]
    """Settings of the template's that do harm, and what else keeps the job from its full speed."""
    booked: HeldAlready | None
    """What the job holds that this one would replace; None where none of that name holds anything."""
    unknown_preference: str | None
    """What to tell of a preferred level that the cluster does not have; None where it has the level."""
    unchecked: tuple[str, ...] = ()
    """What else could keep it from running, and was not looked at."""


@dataclass(frozen=True, slots=True)
class PlanRefused:
    """The job does not fit now."""

    job: JobKey
    pending: Pending
    free: Fragmentation
    """What the cluster has free, and how scattered."""
    booked: HeldAlready | None = None
    """As Placed has it."""
    changes: tuple[Alternative, ...] = ()
    """Those of pending.nearest, with where it would then go."""
    later: tuple[str, ...] = ()
    """What becomes of it by waiting, though nothing else changes, one clause each."""


@dataclass(frozen=True, slots=True)
class Sitting:
    """A job with its booking, and the cluster it sits in."""

    job: TrainingJob
    placement: PlacementStatus
    cluster: Cluster
    waits_first: str | None = None
    """As Placed has it."""
    booked: HeldAlready | None = None
    """As Placed has it."""
    ipc_lock: bool = True
    """Whether the namespace's Pod Security level admits that capability."""

    def gang(self) -> Gang | None:
        """What its Pods are made of; None where a booked node is no longer what was booked."""
        held = booking(self.job)
        made = gang(self.job, held, self.cluster, ipc_lock=self.ipc_lock) if held is not None else None
        return made if isinstance(made, Gang) else None


def over_tcp(made: Gang) -> str | None:
    """Why ranks of different nodes talk over TCP, where nothing faster joins them."""
    if not made.net.is_sockets or made.uses_imex_channels:
        return None
    without = [worker.node for worker in made.workers if not worker.usable]
    why = made.net.value
    if made.net is Net.NO_NICS and without:
        why = f"{names(without)} {'has' if len(without) == 1 else 'have'} no RDMA NIC that NCCL could use"
    return f"ranks of different nodes talk over TCP: {why}"


def plan(
    asked: TrainingJob, objects: Sequence[ClusterObject], clock: datetime, supposed: Supposed = NOTHING
) -> Placed | PlanRefused:
    """The decision on `asked`, as `decided` has it, with ranks and environment, and what a file cannot tell."""
    found = decided(asked, objects, clock, supposed=supposed)
    if isinstance(found, PlanRefused):
        return found
    name = asked.spec.priority_class_name
    unknown = (f"whether there is a PriorityClass {name}",) if name and not found.cluster.priorities else ()
    answer = placed(found)
    return replace(answer, unchecked=(*answer.unchecked, *unknown, NOT_ASKED))


def decided(
    asked: TrainingJob,
    objects: Sequence[ClusterObject],
    clock: datetime,
    *,
    is_live: bool = False,
    supposed: Supposed = NOTHING,
) -> Sitting | PlanRefused:
    """The decision on `asked`, after the unbooked jobs among `objects` that come before it in the queue.

    Raises NotThere where something that is not there is supposed to be free, or gone.

    Now is the newest heartbeat that is not after `clock`: what lies further ahead is no sign of when this was recorded.

    A job of that name among the objects is replaced: what it holds is free, its Pods and claims are gone, its
    suspension is lifted, the end of a finished one is followed by a new one. The answer says what it holds. One that
    waits lends `asked` its age.
    """
    # A file may leave kinds out; a cluster that was asked for all tells that there are none.
    volumes_are_known = is_live or any(isinstance(each, _STORAGE) for each in objects)
    cluster = build(objects, volumes_are_known=volumes_are_known)
    if (words := _unknown_class(asked, cluster)) is not None:
        return not_taken(asked, words, cluster, clock)
    # A job that was copied out of a cluster tells of a life there: what is stored of it is among the objects.
    metadata = asked.metadata.model_copy(update={"deletion_timestamp": None})
    if cluster.kueue.workload_of(asked) is None:  # as if Kueue had admitted it: the question is where it would go
        metadata = metadata.model_copy(update={"labels": {}})
    asked = asked.model_copy(update={"metadata": metadata, "status": TrainingJobStatus()})
    stored = cluster.jobs.get(asked.key)
    held = _held(stored, asked) if stored is not None else None
    if stored is not None:
        cluster = _without_children(cluster, stored)
        asked = _waiting(asked, stored)
    asked = asked.model_copy(update={"spec": asked.spec.model_copy(update={"suspend": False})})
    cluster = supposed.of(cluster.with_job(asked))
    now = cluster.newest_heartbeat(clock) or NO_CLOCK
    tables = Tables()
    decision = decide(cluster, tables, Memory(is_rationed=False), now)
    for next_step in decision.plans:
        if next_step.job != asked.key:
            continue
        if next_step.error is not None:
            raise next_step.error
        status = next_step.status
        if status is not None and status.pending is not None and status.placement is not None:
            # It would start once others have made room: it does not fit now, and the message says who they are.
            return PlanRefused(asked.key, status.pending, fragmentation(cluster.at(now), tables), booked=held)
        if status is not None and status.placement is not None:
            scene = _scene(cluster.at(now), decision.schedule, asked.key)
            booked = asked.model_copy(update={"status": status})
            return Sitting(booked, status.placement, cluster.at(now), _waits_first(asked, scene, tables), held)
        if status is not None and status.pending is not None:
            scene = _scene(cluster.at(now), decision.schedule, asked.key)
            later = after_a_wait(asked, status.pending, cluster, tables, now)
            return replace(_refused(asked, status.pending, scene, tables), booked=held, later=later)
    raise AssertionError(f"{asked.key} is neither placed nor refused")


def not_taken(asked: TrainingJob, words: str, cluster: Cluster, clock: datetime) -> PlanRefused:
    """The answer where the API server would refuse the job, or its Pods, wherever they go."""
    reason, since = PendingReason.TEMPLATE_INVALID, f"{clock:%Y-%m-%dT%H:%M:%SZ}"
    return PlanRefused(asked.key, Pending(reason=reason, message=words, since=since), fragmentation(cluster, Tables()))


def _unknown_class(asked: TrainingJob, cluster: Cluster) -> str | None:
    """No Pod is taken whose PriorityClass is not there; none is known where the objects have no such kind."""
    name = asked.spec.priority_class_name
    if not name or not cluster.priorities or name in cluster.priorities:
        return None
    return unknown_class_words(name, cluster.priorities)


def _held(stored: TrainingJob, asked: TrainingJob) -> HeldAlready | None:
    held = booking(stored)
    if held is None:
        return None
    workers = held.shares[: held.workers]
    return HeldAlready(
        tuple(share.node for share in workers),
        sum(len(share.gpus) for share in workers),
        asked.spec == stored.spec,
    )


def _request(job: TrainingJob, cluster: Cluster) -> Request:
    return request(job.key, job.spec, cluster.volumes_of(job).required)


def _waits_first(job: TrainingJob, cluster: Cluster, tables: Tables) -> str | None:
    preferred = preference(job.spec) if job.metadata.creation_timestamp is None else None
    waiting = patient(_request(job, cluster), cluster, tables) if preferred is not None else None
    if waiting is not None and waiting.gives_way and not backlog(cluster).is_crowded(contender(cluster, job)):
        return None
    answer = place(cluster, waiting, tables) if waiting is not None else None
    if preferred is None or not isinstance(answer, NoFit):
        return None
    return f"at first, for {preferred.patience.total_seconds():.0f} s at most, it {answer.message}"


def _scene(cluster: Cluster, schedule: Schedule, key: JobKey) -> Cluster:
    """The cluster as the job met it: with what is booked for those before it."""
    for entry in schedule.entries:
        if entry.key == key:
            break
        if isinstance(entry.verdict, Book):
            cluster = cluster.with_job(assumed(entry.job, entry.verdict.placement))
    return cluster


def _refused(job: TrainingJob, pending: Pending, cluster: Cluster, tables: Tables) -> PlanRefused:
    """With the changes that would make it fit, each of them placed again."""
    asked = _request(job, cluster)
    is_behind = pending.reason == PendingReason.BEHIND_RESERVATION  # it fits: no change would make it fit
    if traits(pending.reason).is_of_placement and not is_behind:
        if can_place(cluster, asked, tables):  # so that it is its patience that it waits for
            asked = patient(asked, cluster, tables) or asked
        changes = nearest_changes(cluster, asked, tables)
        pending = pending.model_copy(update={"nearest": [str(change) for change in changes]})
        return PlanRefused(job.key, pending, fragmentation(cluster, tables), changes=changes)
    return PlanRefused(job.key, pending, fragmentation(cluster, tables))


def _waiting(asked: TrainingJob, stored: TrainingJob) -> TrainingJob:
    """The asked job in the place of the stored one; with its age, if that waits."""
    if is_finished(stored) or stored.metadata.deletion_timestamp is not None or booking(stored) is not None:
        return asked
    before = stored.status
    status = TrainingJobStatus(attempt=before.attempt, pending=before.pending, patient_until=before.patient_until)
    return asked.model_copy(update={"metadata": stored.metadata, "status": status})


def _without_children(cluster: Cluster, job: TrainingJob) -> Cluster:
    pods = children(job, cluster).own
    claims = cluster.claims_of(job.key)
    return cluster.after(
        (
            *(ObjectChange(pod_stream(pod), pod.key, None) for pod in pods),
            *(ObjectChange(Stream.RESOURCE_CLAIMS, claim.key, None) for claim in claims),
        )
    )


def placed(found: Sitting) -> Placed:
    """What is shown of a job that fits."""
    made = found.gang()
    return Placed(
        job=found.job.key,
        placement=found.placement,
        ranks=_ranks(found.job, found.placement, made),
        environment=container_environment(made, 0) if made is not None else {},
        nvls_gb_s=_nvls(found, made) if made is not None else None,
        waits_first=found.waits_first,
        over_tcp=over_tcp(made) if made is not None else None,
        lacks=degradation(made, found.cluster) if made is not None else None,
        warnings=(
            *(map(str, environment(made, 0).warnings) if made is not None else ()),
            *_lemons(found),
            *_too_few_spares(found),
            *_lent(found),
        ),
        booked=found.booked,
        unknown_preference=unknown_preference(found.job.spec, found.cluster),
        unchecked=() if found.cluster.volumes_are_known else tuple(map(_not_told_of, _claims(found.job))),
    )


def _lemons(found: Sitting) -> Iterator[str]:
    """Each lemon that the job has to take, as a clause."""
    now = found.cluster.now
    taken = () if now is None else lemons_of(found.placement, found.cluster, now)
    yield from (f"{lemon.words}, and nothing else has room" for lemon in taken)


def _too_few_spares(found: Sitting) -> Iterator[str]:
    """How many spare nodes it has, where it asks for more."""
    has, wanted = len(found.placement.spares or ()), found.job.spec.spares
    if has < wanted:
        yield f"spares: {has} of {wanted}: no more nodes like its own are free near them"


def _lent(found: Sitting) -> Iterator[str]:
    """Which of its nodes are lent to it."""
    if words := lent_words(found.job, found.placement, found.cluster):
        yield words


def _not_told_of(claim: str) -> str:
    return (
        f"PersistentVolumeClaim {claim}: whether it is bound, and on which nodes; nothing here tells of any "
        "claim, volume or StorageClass"
    )


def _claims(job: TrainingJob) -> tuple[str, ...]:
    servers = job.spec.parameter_servers
    templates = [job.spec.template.spec, *([servers.template.spec] if servers is not None else [])]
    return tuple(dict.fromkeys(source.claim for spec in templates for source in sources(spec) if source.claim))


def _nvls(found: Sitting, made: Gang) -> float | None:
    """Of a gang on one node, whose environment leaves NCCL the choice."""
    environment, predicted = container_environment(made, 0), found.placement.predicted_bus_bandwidth_gb_s
    if len(made.members) > 1 or predicted is None or environment.get(NVLS) == "0" or "NCCL_ALGO" in environment:
        return None
    (node,) = assignments(found.placement)
    machine = found.cluster.nodes[node.name].machine
    gb_s = planned(machine, machine.positions(tuple(node.gpus))) if machine is not None else None
    return gb_s if gb_s is not None and gb_s > predicted else None


def _ranks(job: TrainingJob, placement: PlacementStatus, gang: Gang | None) -> tuple[Rank, ...]:
    asked = request(job.key, job.spec, NO_VOLUMES.required)
    ranks: list[Rank] = []
    for index, node in enumerate(assignments(placement)):
        uuids = gang.members[index].uuids if gang is not None else ("",) * len(node.gpus)
        for gpu, uuid in zip(node.gpus, uuids, strict=True):
            ranks.append(Rank(len(ranks), node.name, gpu, uuid, coordinates(len(ranks), asked)))
    return tuple(ranks)
