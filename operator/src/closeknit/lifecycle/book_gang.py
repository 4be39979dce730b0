"""The booking of a job that gets GPUs, and then its children."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import chain

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import ConditionType, EventAction, EventReason, PendingReason
from closeknit.api.text.opaque import short
from closeknit.api.trainingjob_status import (
    MAX_WARNINGS,
    EnvironmentStatus,
    PlacementStatus,
    RoomToGrow,
    TrainingJobStatus,
)
from closeknit.cluster.booking.booking import (
    AwaitedAttempt,
    Booking,
    BookingShare,
    assignments,
    decoded,
    encoded,
    encoded_awaits,
    encoded_spares,
    gpu_digest,
    names,
    replacements,
    server_share,
    with_shares,
)
from closeknit.cluster.booking.parameter_servers import dealt
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.job_volumes import Volumes, sources
from closeknit.cluster.objects.storage import ONE_POD
from closeknit.cluster.pods.pod import DEFAULT_GRACE_S, Pod
from closeknit.launch.environment.environment import Environment, environment
from closeknit.launch.gang import Gang, Manifest
from closeknit.launch.manifests.oversize import ALWAYS_FIT, oversize
from closeknit.launch.manifests.pod_manifest import pod
from closeknit.lifecycle.attempt import creation
from closeknit.lifecycle.attempt.attempt import Attempt
from closeknit.lifecycle.attempt.blocking_pods import leftovers
from closeknit.lifecycle.attempt.launched_gang import Lost, gang
from closeknit.lifecycle.attempt.subject import Subject
from closeknit.lifecycle.attempt.verification import verified
from closeknit.lifecycle.failures.refused_growth import RefusedGrowth
from closeknit.lifecycle.failures.staying_pods import cannot_stay, farewells, replacing, told_otherwise
from closeknit.lifecycle.restart.lemons import lemons_of
from closeknit.lifecycle.status.conditions import found as condition
from closeknit.lifecycle.status.conditions import moment, stated, timestamp
from closeknit.lifecycle.status.degraded import Degradation, degradation, harmed
from closeknit.lifecycle.status.pauses import is_between, lingers_from
from closeknit.lifecycle.status.pending import traits
from closeknit.lifecycle.status.preference import unknown_preference
from closeknit.lifecycle.transitions import runs, waits
from closeknit.lifecycle.writes.plan import Create, Notice, Plan
from closeknit.lifecycle.writes.quota_demand import QuotaDemand, given_back, quota_demand
from closeknit.placement.values.placement import Placement, Share
from closeknit.placement.values.sentences import count

# A quota's count follows the end of a Pod within a second on a quiet control plane; on a busy one that may take longer.
COUNTED_FOR = timedelta(seconds=30)
# A Pod on a dead node is no longer counted once its grace period is over, but no event says so: the quota is counted
# again every five minutes (--resource-quota-sync-period of the controller manager).
RECOUNTED_WITHIN = timedelta(minutes=5) + COUNTED_FOR


def assumed(job: TrainingJob, placement: Placement, awaited: Sequence[AwaitedAttempt] = ()) -> TrainingJob:
    """The job for the decisions about others: it holds this already, though others may have it until they are gone."""
    placed_at = _placement_status(job, placement).model_copy(update={"awaits": encoded_awaits(awaited)})
    status = TrainingJobStatus(attempt=job.status.attempt or 1, placement=placed_at, cost=job.status.cost)
    return job.model_copy(update={"status": status})


def too_large(job: TrainingJob, placement: Placement, cluster: Cluster) -> str | None:
    """Why the gang of this placement could never start, and what to do; None where it can."""
    if len(placement.shares) + _servers(job) <= ALWAYS_FIT:
        return None
    made = gang(job, _booking(job, placement, job.status.attempt or 1), cluster, ipc_lock=True)
    return None if isinstance(made, Lost) else oversize(made)


def too_many(job: TrainingJob, placement: Placement, volumes: Volumes) -> str | None:
    """Why not all Pods of this placement could be scheduled, because a claim is for only one; None where they could.

    One node is taken wherever the gang has room on one.
    """
    servers = job.spec.parameter_servers
    templates = [(job.spec.template.spec, len(placement.shares))]
    if servers is not None:
        templates.append((servers.template.spec, servers.replicas))
    for claim in volumes.one_pod:
        pods = sum(count for spec, count in templates if any(source.claim == claim for source in sources(spec)))
        if pods > 1:
            return (
                f"PersistentVolumeClaim {short(claim)} is {ONE_POD}, which one Pod alone may use, and the gang would "
                f"have {pods} Pods with it: use a claim of ReadWriteMany, or ask for no more GPUs than one node has "
                "free"
            )
    return None


def book(subject: Subject, placement: Placement, why: str = "", going: Sequence[Pod] | None = None) -> Plan:
    """The booking of the placement, and all children of the attempt; of one whose other Pods stay only the new ones.
    `why` a job leaves the GPUs that it has by choice: nothing is stored then where the API server refuses the gang.
    `going`: its Pods that run until this is stored, and for whose GPUs it gets these; None: it holds nothing now."""
    job, number = subject.job, subject.attempt
    left = going or ()
    booked = _placement_status(job, placement)
    stored, is_by_choice = job.status.placement, bool(why)
    if stored is not None and stored.swapping:
        swapped = _swapped(subject, placement, booked, stored)
        if isinstance(swapped, Plan):
            return swapped
        number += 1  # all Pods are new; the old ones go once that is stored
        left = subject.children.own
    booking = _booking(job, placement, number)
    made = _gang(subject, booking, booked)
    found = environment(made, 0)
    status = _booked(subject, made, found, booked, number)
    indexes = range(len(made.members))
    is_free = not leftovers(job, subject.children, subject.cluster, made, indexes)  # else they are made once it is
    children = creation.whole(made, with_others=True)
    is_late = may_be_counted(subject)
    asked = quota_demand(children.manifests, may_be_counted=is_late and going is None, gpus=booking.gpus)
    if not is_free:
        children = creation.Creation()
        left = subject.children.own  # what runs on is stopped once that is stored
    asked = after_others(asked, subject, left)
    plan = subject.plan(
        status,
        demand=asked,
        probes=_trials(subject, made) if is_by_choice else _probes(subject, made),
        opening=children.opening,
        actions=children.actions,
        notice=placed(subject, booked, harmed(found), why),
        adds=creation.additions(made),
    )
    plan = replace(plan, sets=found.names, is_by_choice=is_by_choice, is_quota_late=is_late)
    return replace(plan, tells_quotas_last=_is_refused_otherwise(subject))


def book_beside(subject: Subject, placement: Placement) -> Plan | str:
    """The booking of a gang whose Pods stay, with nodes that are added: their places are empty in what is stored. They
    get their Pods by the next Plan. Nothing is stored where a quota has too little left for these, or the API server
    refuses them. Else why all Pods of the gang are to be new."""
    stored = subject.job.status.placement
    assert stored is not None  # noqa: S101 - a job that grows has one, for the type checker
    before, after = decoded(stored), _shares(subject.job, placement)
    if len(before) != len(after) or not all(map(_is_kept, before, after)):
        return "the whole gang goes elsewhere"
    plan = _swapped(subject, placement, _placement_status(subject.job, placement), stored)
    if isinstance(plan, str):
        return plan
    made = [each for each in plan.actions if isinstance(each, Create)]
    return replace(
        plan,
        demand=None if plan.demand is None else replace(plan.demand, may_be_counted=False),
        probes=creation.with_owned(made[: creation.MOST_TRIED], subject.job.metadata.uid or ""),
        actions=(),
        is_by_choice=True,
    )


def take_back(attempt: Attempt, refused: RefusedGrowth, before: Placement | None) -> Plan:
    """The booking as it was before a growth in place that the API server refuses. The ranks train on; the Pods that
    were made for added nodes go. `before` is told of that placement; None: nothing is known of it now."""
    subject, status = attempt.subject, attempt.subject.job.status
    stored = status.placement
    assert stored is not None  # noqa: S101 - a job that grows has one, for the type checker
    kept = slice(len(refused.shares))
    shares, result = verified(subject.cluster, attempt.shares[kept], attempt.pods[kept])
    held = replace(attempt.booking, shares=shares)
    booked = PlacementStatus(node_count=len(shares), gpus=held.gpus, nodes=[])
    booked = booked if before is None else _placement_status(subject.job, before)
    room = RoomToGrow(gpus=attempt.booking.gpus, since=timestamp(subject.now), refused=stated(refused.message))
    booked = with_shares(booked.model_copy(update={"run": stored.run, "room": room}), shares)
    job = subject.job.model_copy(update={"status": status.model_copy(update={"placement": booked})})
    made = Attempt(replace(subject, job=job), held).gang()
    lacks, told = list[Degradation | None](), status.environment
    if not isinstance(made, Lost):  # else it is found when the gang is looked at
        lacks, told = [degradation(made, subject.cluster)], environment_status(environment(made, 0))
    back = runs.taken_back(subject.job, subject.now, booked, shares, result, lacks, told)
    words = f"it goes on with {held.gpus} of its {count(subject.job.spec.gpus, 'GPU')}: {refused.message}"
    as_before = subject.job.model_copy(update={"status": back})
    told_once = replace(subject, job=as_before).notice(
        EventReason.RESIZE_REFUSED, words, action=EventAction.RESIZE, warning=True
    )
    return subject.plan(back, actions=farewells(subject, held), notice=told_once)


def reserve(subject: Subject, placement: Placement, awaited: Sequence[AwaitedAttempt], message: str) -> Plan:
    """The booking of a placement whose GPUs others have until their Pods are gone. Nothing is made by it; but it is
    stored only if the quotas, and the API server's admission, would take the gang: no job makes room for one that
    would be refused."""
    job = subject.job
    booked = _placement_status(job, placement).model_copy(update={"awaits": encoded_awaits(awaited)})
    booking = _booking(job, placement, subject.attempt)
    made = _gang(subject, booking, booked)
    children = creation.whole(made, with_others=True)
    is_first = job.status.placement is None
    reason, unknown = reason_of(awaited), unknown_preference(job.spec, subject.cluster)
    status = waits.awaiting(job, subject.now, booked, reason, message, unknown)
    demand = quota_demand(children.manifests, may_be_counted=may_be_counted(subject), gpus=booking.gpus)
    plan = subject.plan(
        status,
        demand=after_others(demand, subject, _making_room(subject, awaited)) if is_first else None,
        probes=_probes_with_first(subject, made) if is_first else (),
        notice=subject.notice(reason, message, action=EventAction.QUEUE),
        adds=creation.additions(made),
    )
    return replace(plan, tells_quotas_last=_is_refused_otherwise(subject))


def reason_of(awaited: Sequence[AwaitedAttempt]) -> PendingReason:
    """Why a job waits for which these make room."""
    moves = all(each.moves for each in awaited)
    return PendingReason.MOVE_PENDING if moves else PendingReason.PREEMPTION_PENDING


def _gang(subject: Subject, booking: Booking, booked: PlacementStatus) -> Gang:
    made = gang(
        subject.job,
        booking,
        subject.cluster,
        ipc_lock=subject.asks_for_ipc_lock,
        gives_cpus=not subject.answers.cpus_refused,
        has_sidecar=not subject.answers.sidecar_refused,
    )
    if isinstance(made, Lost):  # placement chose from this very cluster
        raise RuntimeError(made.message)  # noqa: TRY004 - no matter of types
    return replace(made, predicted_gb_s=booked.predicted_bus_bandwidth_gb_s)


def _booked(
    subject: Subject, made: Gang, found: Environment, booked: PlacementStatus, number: int
) -> TrainingJobStatus:
    return runs.booked(
        subject.job,
        subject.now,
        booked,
        attempt=number,
        epoch=subject.epoch,
        environment=environment_status(found),
        lacks=degradation(made, subject.cluster),
        words=runs.BookingWords(
            unknown_preference(subject.job.spec, subject.cluster), lent_words(subject.job, booked, subject.cluster)
        ),
    )


def _swapped(subject: Subject, placement: Placement, booked: PlacementStatus, stored: PlacementStatus) -> Plan | str:
    """The booking of other nodes in place of lost ones, with Pods there; or why all Pods of the gang are to be new."""
    after = _shares(subject.job, placement)
    before = _left(decoded(stored), after)
    if len(before) != len(after) or not all(map(_is_kept, before, after)):
        return "the whole gang goes elsewhere"
    shares = tuple(map(replacing, before, after))
    booking = Booking(subject.job.metadata.uid or "", subject.attempt, shares)
    attempt = Attempt(subject, booking)
    if why := cannot_stay(attempt, shares):
        return why
    made = _gang(subject, booking, booked)
    new = attempt.missing
    if why := told_otherwise(made, attempt, [at for at in range(len(shares)) if at not in new]):
        return why
    found = environment(made, 0)
    kept = {"run": stored.run, "swapping": True, "replaced": replacements(shares)}
    status = _booked(subject, made, found, booked.model_copy(update=kept), subject.attempt)
    children = creation.missing(made, new, with_others=False)
    if leftovers(subject.job, subject.children, subject.cluster, made, new):  # else they are made once it is free
        children = creation.Creation()
    is_late = may_be_counted(subject) or _are_outlived_counted(subject, booking)
    return subject.plan(
        status,
        demand=after_others(quota_demand(children.manifests, may_be_counted=is_late), subject, ()),
        actions=(*farewells(subject, booking), *children.actions),
    )


def _left(before: Sequence[BookingShare], after: Sequence[BookingShare]) -> tuple[BookingShare, ...]:
    """The shares of before, lost where their node has none any more: one that is not Ready goes with the lost ones,
    and is not stored as lost before."""
    nodes = {share.node for share in after}
    return tuple(share if share.node in nodes else replace(share, lost=True) for share in before)


def _is_kept(before: BookingShare, after: BookingShare) -> bool:
    """Whether the share is the same as before, unless it was lost."""
    facts = ("node", "gpus", "first_rank", "binding", "nics", "rdma_resource", "mig_device", "server")
    return before.lost or all(getattr(before, fact) == getattr(after, fact) for fact in facts)


def after_others(demand: QuotaDemand, subject: Subject, going: Iterable[Pod]) -> QuotaDemand:
    """The demand once these Pods are gone, which make room for it, and after the jobs of its namespace that are no less
    important, and for which others make room now: else that would be in vain. Their Pods that are there are counted."""
    job, cluster = subject.job, subject.cluster
    there = {pod.key: pod for pod in going}
    first: list[QuotaDemand] = []
    for key, awaited in cluster.awaiting.items():
        other, held = cluster.jobs[key], cluster.booking_of(key)
        is_first = key.namespace == job.key.namespace and cluster.priority(other) >= cluster.priority(job)
        if key == job.key or not is_first or held is None:
            continue
        made = gang(other, held, cluster, ipc_lock=False)
        if isinstance(made, Lost):  # it is told so itself
            continue
        first.append(quota_demand(creation.whole(made, with_others=True).manifests, may_be_counted=False))
        there |= {pod.key: pod for pod in (*_making_room(subject, awaited), *cluster.pods_of(key))}
    return replace(demand, given_back=given_back(there.values(), subject.now), first=tuple(first))


def _making_room(subject: Subject, awaited: Iterable[AwaitedAttempt]) -> Iterator[Pod]:
    """The Pods of the job's namespace that go for it."""
    going = (each for each in awaited if each.job.namespace == subject.job.key.namespace and not each.moves)
    return chain.from_iterable(subject.cluster.pods_of(each.job) for each in going)


def may_be_counted(subject: Subject) -> bool:
    """Whether quotas may still count Pods of the last attempt: then too little left is checked again rather than
    refused."""
    ended = [moment(attempt.ended) for attempt in subject.job.status.attempts[-1:]]
    is_late = any(is_between(since, subject.now, since + COUNTED_FOR) for since in ended)
    is_late = is_late or _is_room_being_made(subject) or _has_just_got_room(subject)
    # One on a dead node is counted until somebody removes it, and then it is the quota that the job lacks.
    going = (pod.deletion_timestamp for pod in subject.children.before(subject.attempt))
    return is_late or any(told is None or subject.now < lingers_from(told, subject.now) for told in going)


def _has_just_got_room(subject: Subject) -> bool:
    """Whether it was booked just now, after others had been told to make room for it."""
    booked = condition(subject.job.status.conditions, ConditionType.PLACED)
    if subject.answers.room_made_at is None or booked is None or booked.status != "True":
        return False
    since = moment(booked.last_transition_time)
    return is_between(since, subject.now, since + COUNTED_FOR)


def _is_room_being_made(subject: Subject) -> bool:
    """Whether quotas may still count Pods in the job's namespace that make room for it."""
    placement = subject.job.status.placement
    for each in placement.awaits or () if placement is not None else ():
        key = JobKey(each.namespace, each.name)
        job = subject.cluster.jobs.get(key) if each.namespace == subject.job.key.namespace else None
        for ended in job.status.attempts if job is not None else ():
            if ended.number == each.attempt:
                grace_s = max((pod.grace_s for pod in subject.cluster.pods_of(key)), default=DEFAULT_GRACE_S)
                since = moment(ended.ended)
                if is_between(since, subject.now, since + timedelta(seconds=grace_s) + COUNTED_FOR):
                    return True
    return False


def _are_outlived_counted(subject: Subject, held: Booking) -> bool:
    """Whether quotas may still count Pods whose place others take: to refuse these would end the Pods that stay."""
    return any(
        pod.is_live
        and (
            pod.deletion_timestamp is None
            or subject.now < lingers_from(pod.deletion_timestamp, subject.now) + RECOUNTED_WITHIN
        )
        for pod in subject.children.outlived(held)
    )


def placed(subject: Subject, booked: PlacementStatus, harm: str | None = None, why: str = "") -> Notice:
    """The Event of a booking, with why it leaves the GPUs that it had, settings that harm the job there, a level that
    it prefers in vain, a lemon that it had to take, and nodes that are lent to it."""
    nodes = assignments(booked)
    device = next((node.mig_device for node in nodes if node.mig_device), None)
    asked = f"MIG device {device}" if device else count(sum(len(node.gpus) for node in nodes), "GPU")
    bandwidth = booked.predicted_bus_bandwidth_gb_s
    predicted = "" if bandwidth is None else f", {bandwidth:g} GB/s predicted"
    bad = [f"{each.words}, and nothing else had room" for each in lemons_of(booked, subject.cluster, subject.now)[:1]]
    warnings = [words for words in (harm, unknown_preference(subject.job.spec, subject.cluster), *bad) if words]
    few = "" if booked.gpus is None else f" of the {subject.job.spec.gpus} that it asks for"
    moved = [words for words in (why, lent_words(subject.job, booked, subject.cluster)) if words]
    note = "; ".join((f"{asked}{few} on {names([node.name for node in nodes])}{predicted}", *moved, *warnings))
    return subject.notice(EventReason.PLACED, note, action=EventAction.PLACE, warning=bool(warnings))


def lent_words(job: TrainingJob, booked: PlacementStatus, cluster: Cluster) -> str:
    """Which nodes of a placement are spare ones of others, or of the job's queue, as clauses; empty without any."""
    nodes = assignments(booked)
    lent = [node.name for node in nodes if cluster.lenders_of(job.key, node.name, node.gpus)]
    of_queues: dict[str, list[str]] = {}
    for node in nodes:
        view = cluster.nodes.get(node.name)
        if view is not None and view.spare_for:
            of_queues.setdefault(view.spare_for, []).append(node.name)
    own = of_queues.pop(job.spec.queue or "", [])
    others = sorted(name for there in of_queues.values() for name in there)
    whose = f"queue {next(iter(of_queues))}" if len(of_queues) == 1 else "other queues"
    told = [
        _lent(lent, "another job, which takes {them} back when it loses a node: the job then waits again"),
        _lent(others, f"{whose}, whose jobs take {{them}} back when they lose a node: the job then waits again"),
        _lent(own, "its queue"),
    ]
    return "; ".join(filter(None, told))


def _lent(nodes: Sequence[str], whose: str) -> str:
    are, them = ("is a spare node", "it") if len(nodes) == 1 else ("are spare nodes", "them")
    return f"{names(nodes)} {are} of {whose.format(them=them)}" if nodes else ""


def _booking(job: TrainingJob, placement: Placement, number: int) -> Booking:
    return Booking(job.metadata.uid or "", number, _shares(job, placement))


def _servers(job: TrainingJob) -> int:
    return job.spec.parameter_servers.replicas if job.spec.parameter_servers is not None else 0


def _shares(job: TrainingJob, placement: Placement) -> tuple[BookingShare, ...]:
    servers, nodes = _servers(job), [share.node for share in placement.shares]
    served = dealt(servers, len(nodes)) if servers else ()
    return tuple(map(booked_share, placement.shares)) + tuple(
        server_share(nodes[rank], index) for index, rank in enumerate(served)
    )


def booked_share(share: Share) -> BookingShare:
    """A share of a placement as it is booked."""
    return BookingShare(
        node=share.node,
        gpus=share.gpus,
        first_rank=share.first_rank,
        binding=share.binding,
        nics=share.nics,
        rdma_resource=share.rdma_resource,
        topology_generation=share.topology_generation,
        gpu_digest="" if share.mig_device else gpu_digest(share.uuids),
        mig_device=share.mig_device,
    )


def _placement_status(job: TrainingJob, placement: Placement) -> PlacementStatus:
    told = encoded(_shares(job, placement))
    gpus = sum(len(share.gpus) for share in placement.shares)
    return PlacementStatus(
        node_count=len(placement.shares),
        gpus=gpus if gpus < job.spec.gpus else None,
        nodes=told.nodes,
        packed=told.packed,
        parameter_servers=told.parameter_servers,
        spares=encoded_spares(tuple(map(booked_share, placement.spares))),
        levels=dict(placement.levels) or None,
        predicted_bus_bandwidth_gb_s=_rounded(placement.predicted_bus_bandwidth_gb_s),
        ideal_bus_bandwidth_gb_s=_rounded(placement.ideal_bus_bandwidth_gb_s),
        limited_by=stated(placement.limited_by) or None,
        ended_at_budget=placement.ended_at_budget or None,
    )


def _rounded(bandwidth_gb_s: float | None) -> float | None:
    """One decimal, for a printer column formats nothing."""
    return None if bandwidth_gb_s is None else round(bandwidth_gb_s, 1)


def environment_status(found: Environment) -> EnvironmentStatus | None:
    """The effect of the user's settings, and the version of NCCL by which it is told; None without any."""
    warnings, version = [str(each) for each in found.warnings], found.gang.nccl_version
    if len(warnings) > MAX_WARNINGS:
        warnings[MAX_WARNINGS - 1 :] = [f"and {len(warnings) - MAX_WARNINGS + 1} more"]
    if not (found.skipped or warnings or version):
        return None
    return EnvironmentStatus(
        skipped=list(found.skipped),
        warnings=[stated(each) for each in warnings],
        nccl_version=None if version is None else str(version),
    )


def _is_refused_otherwise(subject: Subject) -> bool:
    """Whether the job was last refused for something else than a quota. After a restart its status says so."""
    rejection, pending = subject.answers.rejection, subject.job.status.pending
    if rejection is not None:
        return rejection.reason is not PendingReason.QUOTA_EXCEEDED
    is_probed = pending is not None and traits(pending.reason).is_probed
    return is_probed and pending is not None and pending.reason != PendingReason.QUOTA_EXCEEDED


def _probes(subject: Subject, gang: Gang) -> tuple[Manifest, ...]:
    """Probes before the booking: none, unless something was refused the last time. A restart forgets what, but not that
    it was. After a quota's refusal two Pods of each role follow: the gang is compared as admission makes these."""
    rejection, pending = subject.answers.rejection, subject.job.status.pending
    reason = rejection.reason if rejection is not None else pending.reason if pending is not None else None
    of_roles = _of_each_role(gang, 2) if reason == PendingReason.QUOTA_EXCEEDED else ()
    if rejection is not None and rejection.manifest is not None:
        return _distinct((creation.as_now(rejection.manifest, gang), *of_roles))
    is_probed = pending is not None and traits(pending.reason).is_probed
    return _distinct((*((pod(gang, 0),) if is_probed else ()), *of_roles))


def _trials(subject: Subject, gang: Gang) -> tuple[Manifest, ...]:
    """Trials before a gang that runs ends for this one; after a refusal two Pods of each role are among them."""
    of_roles = () if subject.answers.refused_change is None else _of_each_role(gang, 2)
    return _distinct((*creation.trials(gang), *of_roles))


def _probes_with_first(subject: Subject, gang: Gang) -> tuple[Manifest, ...]:
    """The same, and the first Pod of each role in any case: others are to end for these."""
    return _distinct((*_of_each_role(gang, 1), *_probes(subject, gang)))


def _of_each_role(gang: Gang, number: int) -> Iterator[Manifest]:
    """So many Pods of each role."""
    roles = Counter[str]()
    for at, member in enumerate(gang.members):
        roles[member.role] += 1
        if roles[member.role] <= number:
            yield pod(gang, at)


def _distinct(asked: Iterable[Manifest]) -> tuple[Manifest, ...]:
    return tuple({(each["kind"], each["metadata"]["name"]): each for each in asked}.values())
