"""The end of an attempt, and its effect on the job."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import msgspec

from closeknit.api.names import Role, service_name
from closeknit.api.reasons import EndReason, EventAction, ExclusionReason
from closeknit.api.text.quantity import duration_s
from closeknit.api.trainingjob import MAX_RESTARTS, Restart
from closeknit.api.trainingjob_status import Binding, BlamedDevice, Exit, UnfitNode
from closeknit.cluster.booking.booking import BookingShare
from closeknit.cluster.node.node import NodeView
from closeknit.cluster.objects.dra import ResourceClaim
from closeknit.cluster.objects.node_objects import UNSCHEDULABLE_TAINT
from closeknit.cluster.objects.pod_requests import MEMORY, PodResourceSpec
from closeknit.cluster.pods.gang_runs import gave_up
from closeknit.cluster.pods.pod import DISRUPTION_TARGET, ContainerState, Pod
from closeknit.cluster.pods.symptoms import Said, Symptom, are_of_one_that_waited, failed_container, of_pod
from closeknit.launch.environment.nccl import NVLS
from closeknit.launch.remedy import Remedy
from closeknit.launch.template import trainer
from closeknit.lifecycle.attempt import avoided_nodes, remedies
from closeknit.lifecycle.attempt.attempt import Attempt
from closeknit.lifecycle.attempt.avoided_nodes import Unfit
from closeknit.lifecycle.attempt.blocking_pods import Leftover, told
from closeknit.lifecycle.attempt.ended_pods import remains
from closeknit.lifecycle.attempt.launched_gang import Lost, uuids
from closeknit.lifecycle.attempt.remedies import called_for
from closeknit.lifecycle.attempt.subject import NOTE_MAX_LENGTH, Subject, deletions
from closeknit.lifecycle.health import device_health
from closeknit.lifecycle.health.device_health import ill_devices, words
from closeknit.lifecycle.lost_nodes.dead_nodes import dead_nodes
from closeknit.lifecycle.lost_nodes.kept_shares import kept, placed_as_a_whole
from closeknit.lifecycle.lost_nodes.staying_pods import ALL_LOST, NO_SIDECAR, cannot_stay, farewells
from closeknit.lifecycle.restart.restart_decision import EndOfRun, Fails, StartsAgain, charges, judge
from closeknit.lifecycle.status import lost_time
from closeknit.lifecycle.status.blame import TABLE, WAITED_AT_LEAST, Blame, Follows, Row, end_reason
from closeknit.lifecycle.status.conditions import stated, timestamp
from closeknit.lifecycle.status.degraded import FIXED, Degradation, degradation
from closeknit.lifecycle.status.pauses import deleted_at, lasted, later
from closeknit.lifecycle.transitions import ends
from closeknit.lifecycle.transitions.ends import NO_FACTS, EndFacts
from closeknit.lifecycle.writes.plan import Delete, Plan
from closeknit.placement.values.sentences import count

_ILL = frozenset({Symptom.GPU_DEAD, Symptom.GPU_ILL_AT_EXIT, Symptom.NIC_DOWN_AT_EXIT})  # `end` knows which devices
# Ends by the loss of nodes or devices of a gang, before it runs or later: what is well of it stays booked, and the rest
# is replaced.
SWAPPED = frozenset(
    {
        EndReason.NODE_LOST,
        EndReason.NODE_CHANGED,
        EndReason.DISRUPTED,
        EndReason.CHILD_DELETED,
        EndReason.GPU_LOST,
        EndReason.GPU_UNHEALTHY,
        EndReason.NIC_DOWN,
    }
)


def end(
    attempt: Attempt,
    reason: EndReason,
    message: str,
    *,
    again: Sequence[BookingShare] | None = None,
    unfit: Unfit = MappingProxyType({}),
    lacks: Degradation | None = None,
    facts: EndFacts = NO_FACTS,
) -> Plan:
    """The attempt ends, its Pods go, and the next one follows: on the shares of `again` if there are any, avoiding for
    a while the nodes, or only the GPUs, of `unfit`, and all devices of the gang that are not well. Where nodes are lost
    it holds the rest."""
    subject = attempt.subject
    ill = ill_devices(attempt)
    again = None if ill else again
    unfit = {**device_health.unfit(ill), **unfit}
    if again is None and (ill or reason in SWAPPED or attempt.is_swapping):
        again = kept(subject.job, attempt.booking.shares, subject.cluster, subject.now, frozenset(unfit))
    seen = avoided_nodes.unfit(unfit, subject.job, subject.cluster, subject.now)
    if again is not None and lacks is None and any(share.lost for share in again):
        why = placed_as_a_whole(subject.job, again, subject.cluster) or cannot_stay(attempt, again)
        if not why:
            return _swap(attempt, reason, message, again, seen, facts)
        message = message if why in {NO_SIDECAR, ALL_LOST} else f"{message}; all its Pods are new, for {why}"
    status = ends.restarting(
        subject.job,
        subject.now,
        reason,
        message,
        again=again,
        unfit=seen,
        lacks=lacks,
        facts=facts,
    )
    service = Delete("Service", service_name(subject.job.metadata.name, subject.attempt))
    notice = subject.notice(reason, message, action=EventAction.RESTART, warning=True)
    made_by_others = deletions(attempt.replaced)
    gone = {each.name for each in made_by_others}
    left = [each for each in remains(subject, subject.attempt, ended=subject.now).actions if each.name not in gone]
    return subject.plan(status, actions=(*made_by_others, *left, service), notice=notice)


def _swap(
    attempt: Attempt,
    reason: EndReason,
    message: str,
    shares: Sequence[BookingShare],
    unfit: list[UnfitNode] | None,
    facts: EndFacts,
) -> Plan:
    """The run ends: Pods on lost nodes leave, and the others stay and wait for new ones in their place."""
    subject = attempt.subject
    status = ends.swapping(subject.job, subject.now, reason, message, shares=shares, unfit=unfit, facts=facts)
    notice = subject.notice(reason, message, action=EventAction.RESTART, warning=True)
    left = farewells(subject, replace(attempt.booking, shares=tuple(shares)))
    return subject.plan(status, actions=left, notice=notice)


def abandoned(subject: Subject, shares: Sequence[BookingShare], why: str) -> Plan:
    """Pods that were to stay while others are replaced cannot: the next attempt has new ones. It is the same
    restart."""
    status = ends.abandoned(subject.job, subject.now, shares, why)
    left = remains(subject, subject.attempt, ended=subject.now).actions
    service = Delete("Service", service_name(subject.job.metadata.name, subject.attempt))
    return subject.plan(status, actions=(*left, service))


def is_cordoned(view: NodeView | None) -> bool:
    """Whether a node is cordoned, as by a drain before it evicts the node's Pods."""
    return view is not None and UNSCHEDULABLE_TAINT in view.taints


def whole(nodes: Iterable[str]) -> Unfit:
    """Nodes that are unfit as a whole."""
    return {node: () for node in nodes if node}


def gpus_or_node(attempt: Attempt, share: BookingShare) -> tuple[str, ...]:
    """UUIDs of a share's GPUs, so that the job may try the node's others; none, for the whole node, if a device plugin
    chooses the GPUs, or more than half of the node's were tried."""
    subject = attempt.subject
    view = subject.cluster.nodes.get(share.node)
    named = uuids(view, share) if view is not None and share.binding is Binding.DRA else None
    if view is None or named is None:
        return ()
    before = avoided_nodes.avoided_nodes(subject.job, subject.cluster, subject.now).devices.get(share.node, frozenset())
    there = [device.uuid for device in view.mig] if share.mig_device else view.usable
    return named if 2 * len(before.union(named)) <= len(there) else ()


def node_changed(attempt: Attempt, lost: Lost) -> Plan:
    """The end if a booked node no longer matches the booking, and nothing has run yet."""
    return end(attempt, EndReason.NODE_CHANGED, lost.message)


def node_lost(attempt: Attempt, dead: Mapping[str, str]) -> Plan:
    """The end if nodes of the gang are dead, each with the words about it. It was when they gave no sign of life any
    more, and not when that had lasted long enough: the others have waited for them since."""
    more = f"; {count(len(dead) - 1, 'node')} more likewise" if len(dead) > 1 else ""
    views = (attempt.subject.cluster.nodes.get(node) for node in dead)
    quiet_s = max((view.silence.quiet for view in views if view is not None and view.silence is not None), default=0)
    fault = attempt.subject.now - timedelta(seconds=quiet_s) if quiet_s else None
    facts = EndFacts(fault=fault, blamed=_there(attempt, dead))
    return end(attempt, EndReason.NODE_LOST, f"{next(iter(dead.values()))}{more}", unfit=whole(dead), facts=facts)


def _there(attempt: Attempt, nodes: Iterable[str]) -> tuple[BlamedDevice, ...]:
    """Those of these nodes that are to blame: one without a Node was taken away, by an autoscaler as a rule."""
    views = attempt.subject.cluster.nodes
    found = (views.get(node) for node in sorted(set(nodes)))
    return tuple(BlamedDevice(node=view.name) for view in found if view is not None and view.is_there)


def claim_stays(attempt: Attempt, claim: ResourceClaim) -> Plan:
    """The end if booked GPUs belong to the shared claim of a Pod that is gone: they are not free with it."""
    users = [name for name in claim.reserved_for if name != claim.name]
    message = f"Pod {users[0]} uses ResourceClaim {claim.name}, and with it GPUs that are booked; the job starts again"
    return end(attempt, EndReason.GPU_TAKEN, message)


def left_behind(attempt: Attempt, stays: Sequence[Leftover]) -> Plan:
    """The end if a leftover of an earlier attempt stays: a finalizer, a process that ignores its end, a hung kubelet.
    The job avoids its nodes for a while."""
    message = f"{told(stays)}; that takes too long, and the job is placed again"
    return end(attempt, EndReason.GPU_TAKEN, message, unfit=whole(each.node for each in stays))


_BY_SIGNAL = 128  # a shell's and a runtime's exit code of a program that a signal ended is this and the signal
KEPT_EXITS = 8  # of one end, as the schema bounds them
EXIT_REASON_MAX_LENGTH = 64
EXIT_MESSAGE_MAX_LENGTH = 256


@dataclass(frozen=True, slots=True)
class Failure:
    """The symptom of one Pod of a gang that has failed, or is being ended."""

    pod: Pod
    share: BookingShare
    trainer: str | None
    """Name of the container that decides."""
    said: Said
    is_launcher: bool = False
    """Whether the others only serve its container, as with MPI."""

    @property
    def row(self) -> Row:
        """Whose fault it is, and what follows."""
        return TABLE[self.said.symptom]


def failures(attempt: Attempt) -> list[Failure]:
    """Symptoms of the gang's Pods that have failed, or are being ended; the most to blame comes first.

    What is not the job's fault stands before what is, for the others fail with it, and Kubernetes' own mark before
    all. Of its own what has a name of its own, as want of memory, stands before a mere exit code, then a launcher
    before those whom it launches, and what ended earlier before what ended later. The end of a Pod that somebody
    deletes or stops is no cause.
    """
    found: list[Failure] = []
    for pod, share in zip(attempt.pods, attempt.booking.shares, strict=True):
        decides = attempt.trainer_of(share)
        if pod is not None and (said := of_pod(pod, decides)) is not None:
            if why := gave_up(pod):
                said = Said(Symptom.EXITED, why)
            is_served = attempt.has_launcher and share.first_rank == 0 and share.server is None
            found.append(Failure(pod, share, decides, said, is_launcher=is_served))
    found = by_others(attempt, found)
    # Where one of the gang is over, a rank that failed beside it can never start again in its Pod: that is its own end.
    if found and not any(share.succeeded for share in attempt.shares) and all(gave_up(each.pod) for each in found):
        found = [replace(each, said=Said(Symptom.RANK_NOT_STARTED, each.said.words)) for each in found]
    if found and all(each.row.blame is Blame.JOB for each in found):
        late = _not_started(attempt)
        if late is not None and all(map(_has_waited, found)):
            found = [replace(each, said=Said(Symptom.RANK_NOT_STARTED, late)) for each in found]
    return sorted(found, key=_weight)


def by_others(attempt: Attempt, found: list[Failure], *, runs_again: bool = False) -> list[Failure]:
    """The failures, of which a silent node or an ill device of the gang takes the blame. `runs_again`: all its Pods
    have told of the next run since, so that no node of it was dead."""
    if found and all(each.row.blame is Blame.JOB for each in found):
        if not runs_again and (silent := _silent_nodes(attempt)):
            words = next(iter(silent.values()))
            return [replace(each, said=Said(Symptom.NODE_NOT_READY, words)) for each in found]
        if (ill := _ill_at_exit(attempt, found)) is not None:
            return [ill]
    return found


def _weight(failure: Failure) -> tuple[bool, bool, bool, bool, bool, str, bool]:
    container = failed_container(failure.pod, failure.trainer)
    symptom = failure.said.symptom
    return (
        failure.row.blame is Blame.JOB,
        symptom is not Symptom.DISRUPTED,
        symptom is Symptom.EXITED,
        _was_told_to_end(failure.pod),
        not failure.is_launcher,
        "" if container is None else container.ended,
        container is not None and (container.exit_code or 0) > _BY_SIGNAL,
    )


def _was_told_to_end(pod: Pod) -> bool:
    """Whether somebody deletes or stops the Pod: its exit code is that of a signal, and no cause."""
    return pod.deletion_timestamp is not None or pod.is_stopped


def _silent_nodes(attempt: Attempt) -> dict[str, str]:
    """The nodes of the gang that are gone or not Ready, each with the message: then failures on them, or beside them,
    prove nothing about the job."""
    found: dict[str, str] = {}
    for share in attempt.booking.shares:
        view = attempt.subject.cluster.nodes.get(share.node)
        if view is None:
            found[share.node] = f"node {share.node} is no longer there"
        elif view.exclusion is not None and view.exclusion.reason is ExclusionReason.NOT_READY:
            found[share.node] = f"node {share.node} is not ready: {view.exclusion.message}"
    return found


def _ill_at_exit(attempt: Attempt, found: Sequence[Failure]) -> Failure | None:
    """The failure by a device of the gang that is not well, where its ranks ended with mere exit codes."""
    ill = ill_devices(attempt) if all(each.said.symptom is Symptom.EXITED for each in found) else ()
    if not ill:
        return None
    failed = {each.share.node for each in found}
    worst = min(ill, key=lambda each: (not each.is_dead, each.share.node not in failed, not each.is_gpu))
    symptom = Symptom.GPU_ILL_AT_EXIT if worst.is_gpu else Symptom.NIC_DOWN_AT_EXIT
    near = next((each for each in found if each.share.node == worst.share.node), found[0])
    return replace(near, share=worst.share, said=Said(Symptom.GPU_DEAD if worst.is_dead else symptom, words(ill)))


def _not_started(attempt: Attempt) -> str | None:
    """The message that a Pod of the gang has not started: the started ones wait for it in vain."""
    late = [pod for pod in attempt.present if pod.phase in {"", "Pending"}]
    if not late:
        return None
    waiting = next((each.reason for each in late[0].containers if each.waiting and each.reason), "")
    where = f" on node {late[0].node}" if late[0].node else ""
    more = f" ({count(len(late) - 1, 'more Pod')} likewise)" if len(late) > 1 else ""
    return f"Pod {late[0].name}{where} had not started{f' ({waiting})' if waiting else ''}{more}"


def _has_waited(failure: Failure) -> bool:
    """Whether a container that ended with an error may have waited for another rank: it says so, or ran for long."""
    container = failed_container(failure.pod, failure.trainer)
    if container is None or failure.said.symptom is not Symptom.EXITED:
        return False
    ran = lasted(container.began, container.ended)
    return are_of_one_that_waited(container.message) or (ran is not None and ran >= WAITED_AT_LEAST)


def device_died(attempt: Attempt) -> Plan | None:
    """The end of a run on a GPU that computes no more; None without one."""
    ill = [each for each in ill_devices(attempt) if each.is_dead]
    if not ill:
        return None
    does, is_reset, it = ("computes", "it is", "it") if len(ill) == 1 else ("compute", "they are", "them")
    message = f"{words(ill)} {does} no more until {is_reset} reset; the job starts again without {it}"
    facts = EndFacts(blamed=device_health.blamed(ill))
    return end(attempt, end_reason(Symptom.GPU_DEAD), message, facts=facts)


def blameless(attempt: Attempt, found: list[Failure] | None = None) -> Plan | None:
    """The end of an attempt by a fault that is not the job's; None where no other cause is known to have ended its
    Pods. `found` are other failures than those of its Pods' phases."""
    found = failures(attempt) if found is None else found
    if not found or found[0].row.blame is Blame.JOB:
        return None
    first = found[0]
    alike = [each for each in found if each.row.reason is first.row.reason and each.row.blame is not Blame.JOB]
    more = f"; {len(alike) - 1} more likewise" if len(alike) > 1 else ""
    unfit = _unfit(attempt, alike)
    then = "" if unfit else "; the job starts again"
    facts = replace(end_facts(attempt, found), blamed=_blamed(attempt, alike))
    return end(attempt, end_reason(first.said.symptom), f"{_told(first)}{more}{then}", unfit=unfit, facts=facts)


def _blamed(attempt: Attempt, found: Sequence[Failure]) -> tuple[BlamedDevice, ...]:
    """The nodes and GPUs that ended a run. A node that refuses a Pod, or has no room for it, has ended none; nor has a
    silent one where none of its own Pods has failed, until it is known to be dead: a blip is no death."""
    first = found[0].said.symptom
    if first in _ILL:
        ill = [each for each in ill_devices(attempt) if each.share.node == found[0].share.node]
        return device_health.blamed(
            each
            for each in ill
            if (each.is_dead if first is Symptom.GPU_DEAD else each.is_gpu is (first is Symptom.GPU_ILL_AT_EXIT))
        )
    if first is Symptom.NODE_NOT_READY:
        ended = {each.pod.node for each in found}.union(dead_nodes(attempt))
        return _there(attempt, ended.intersection(_silent_nodes(attempt)))
    return _there(attempt, [each.pod.node for each in found if each.said.symptom is Symptom.CONTAINER_LOST])


def _unfit(attempt: Attempt, found: Sequence[Failure]) -> Unfit:
    """The nodes that mishandled Pods, or only the GPU that a node's driver names."""
    nodes = whole(each.share.node for each in found if each.row.follows is Follows.ELSEWHERE)
    shares = [each.share for each in found if each.row.follows is Follows.OTHER_GPUS and each.said.symptom not in _ILL]
    return {**{share.node: gpus_or_node(attempt, share) for share in shares}, **nodes}


def _told(failure: Failure) -> str:
    """The message about the cause that ended a Pod and is not the job's fault."""
    pod, told = failure.pod, failure.said.words
    said = f": {told}" if told else ""
    match failure.said.symptom:
        case Symptom.DISRUPTED:
            where = f" of node {pod.node}" if pod.node else ""
            return f"Pod {pod.name}{where} was disrupted{said}"
        case Symptom.SHUT_DOWN | Symptom.PREEMPTED | Symptom.EVICTED:
            return f"node {pod.node} ended Pod {pod.name}{said}"
        case Symptom.CONTAINER_LOST:
            return f"node {pod.node} lost a container of Pod {pod.name}, as it does when it is restarted{said}"
        case Symptom.RANK_NOT_STARTED:
            return f"Pod {pod.name} on node {pod.node} gave up while {told}"
        case Symptom.NODE_NOT_READY:
            return f"Pod {pod.name} on node {pod.node} failed while {told}"
        case Symptom.GPU_DEAD | Symptom.GPU_ILL_AT_EXIT | Symptom.NIC_DOWN_AT_EXIT:
            return f"Pod {pod.name} on node {pod.node} failed beside {told}"
        case Symptom.DEVICES_NOT_GIVEN | Symptom.GPU_NOT_GIVEN:
            return f"node {pod.node} cannot give Pod {pod.name} its devices{said}"
        case _:
            return f"node {pod.node} refused Pod {pod.name}{said}"


def child_deleted(attempt: Attempt, *, is_fit: bool) -> Plan:
    """The end if a Pod is gone, or going, before it finished: the job restarts, in place if that `is_fit`."""
    if (made := blameless(attempt)) is not None:
        return made
    job = attempt.subject.job
    name = f"{job.metadata.name}-a{attempt.booking.attempt}"
    missing = ((position, attempt.booking.shares[position].server) for position in attempt.missing)
    gone = [f"{name} rank {rank}" if server is None else f"{name} server {server}" for rank, server in missing]
    moments = (deleted_at(pod.deletion_timestamp, pod.grace_s) for pod in attempt.ending)
    facts = EndFacts(fault=min((each for each in moments if each is not None), default=None))
    who = ", ".join([*(f"Pod {pod.name}" for pod in attempt.ending), *gone][:4])
    left = [*(pod.node for pod in attempt.ending), *(attempt.booking.shares[at].node for at in attempt.missing)]
    if drained := [node for node in left if is_cordoned(attempt.subject.cluster.nodes.get(node))]:
        message = f"{who} was evicted from node {drained[0]}, which is cordoned as for a drain; the job starts again"
        return end(attempt, end_reason(Symptom.DRAINED), message, facts=facts)
    message = f"{who} was deleted before it was over; the job starts again"
    return end(attempt, EndReason.CHILD_DELETED, message, again=again_on(attempt, is_fit=is_fit), facts=facts)


def again_on(attempt: Attempt, *, is_fit: bool) -> Sequence[BookingShare] | None:
    """The same shares for the next attempt, if they fit it; else None, and it is placed again."""
    if not is_fit or isinstance(attempt.gang(), Lost):
        return None
    return [replace(share, actual=None, succeeded=False) for share in attempt.booking.shares]


def replaced(attempt: Attempt) -> Plan:
    """The end if a foreign Pod has the place of one of ours. With it the job would keep GPUs past every quota."""
    pod = attempt.replaced[0]
    message = f"Pod {pod.name} is not the one that was made: it does not ask for the booked GPUs, or is elsewhere"
    return end(attempt, EndReason.CHILD_DELETED, f"{message}; the job starts again")


def succeeded(attempt: Attempt) -> Plan:
    """The job's success: every Pod has succeeded, or the one that the others serve."""
    subject = attempt.subject
    workers = attempt.booking.workers
    message = f"{_all(len(attempt.pods), 'Pod')} ended with exit code 0"
    if not all(share.succeeded for share in attempt.shares[:workers]):
        first = attempt.shares[0 if attempt.shares[0].succeeded else workers]
        who = "launcher" if first.server is None else "chief"
        message = f"the {who} on node {first.node} ended with exit code 0"
    elif workers < len(attempt.shares):
        message = f"{_all(workers, 'worker')} ended with exit code 0"
    status = ends.finished(subject.job, subject.now, EndReason.SUCCEEDED, message, succeeded=True)
    return subject.plan(status, notice=subject.notice(EndReason.SUCCEEDED, message, action=EventAction.FINISH))


def failed(attempt: Attempt, *, is_fit: bool) -> Plan:
    """What follows where a Pod has failed by the job's own fault: another setting or other nodes may help, its restart
    policy may have it start again, or it has failed."""
    subject = attempt.subject
    pods = [pod for pod in attempt.present if pod.phase == "Failed"]
    if (made := _remedied(attempt, pods, is_fit=is_fit)) is not None:
        return made
    found = failures(attempt)
    message = own_end(attempt, found)
    facts, exit_code = end_facts(attempt, found), trainers_exit_code(attempt, found[0])
    judged, told, facts = judged_end(attempt, found[0].row, message, facts, exit_code=exit_code)
    if isinstance(judged, Fails):
        return over(subject, judged.reason, told, charged=True, facts=facts)
    return end(attempt, EndReason.POD_FAILED, told, again=again_on(attempt, is_fit=is_fit), facts=facts)


def own_end(attempt: Attempt, found: Sequence[Failure]) -> str:
    """The message about Pods that failed by the job's own fault, the cause first."""
    message = _own_end(found[0], attempt.template_of(found[0].share))
    return message if len(found) == 1 else f"{message}; {len(found) - 1} more failed"


def judged_end(
    attempt: Attempt, row: Row, message: str, facts: EndFacts, *, exit_code: int | None, runs: int = 1
) -> tuple[StartsAgain | Fails, str, EndFacts]:
    """What follows from so many runs that ended so, the message with that, and the facts with what is charged. Of
    several only the last end is known, so that all are charged for the moment of that one."""
    subject = attempt.subject
    policy, status, now = subject.job.spec.restart or Restart(), subject.job.status, subject.now
    fault = lost_time.fault_at(status, facts.fault, now)
    ran = lost_time.ran(status, fault)
    length = None if ran is None else timedelta(seconds=duration_s(ran))
    at = now if runs == 1 else fault
    before = charges(policy, status, now)
    unseen = [timestamp(at)] * min(runs - 1, MAX_RESTARTS)
    charged = status.model_copy(update={"charges": [*map(timestamp, before), *unseen]})
    judged = judge(EndOfRun(row, exit_code, length), policy, charged, now)
    if isinstance(judged, Fails) and unseen:
        facts = replace(facts, charges=tuple(charges(policy, charged, now)))
    elif isinstance(judged, StartsAgain) and judged.charged:
        facts = replace(facts, charges=(*charges(policy, charged, now), at)[-MAX_RESTARTS:])
    told = f"{_cut(message, NOTE_MAX_LENGTH - len(judged.words) - 2)}; {judged.words}" if judged.words else message
    return judged, told, facts


def _cut(message: str, most: int) -> str:
    """The message in so many bytes: what a program says last may be longer than an Event, and the verdict behind it is
    to be read all the same."""
    whole = stated(message).encode()
    return whole.decode() if len(whole) <= most else f"{whole[: most - 3].decode(errors='ignore')}…"


def trainers_exit_code(attempt: Attempt, failure: Failure) -> int | None:
    """The exit code of the Pod's trainer, whatever failed beside or before it; None where it has none."""
    container = failure.pod.container(trainer(attempt.template_of(failure.share))["name"])
    return None if container is None else container.exit_code or None


def over(
    subject: Subject,
    reason: EndReason,
    message: str,
    *,
    charged: bool = False,
    facts: EndFacts = NO_FACTS,
    uncounted: int = 0,
) -> Plan:
    """The job's failure for good. It gives its GPUs back; Pods of its last attempt stay with their logs. `uncounted` as
    in `finished`."""
    status = ends.finished(
        subject.job,
        subject.now,
        reason,
        message,
        succeeded=False,
        charged=charged,
        facts=facts,
        uncounted=uncounted,
    )
    notice = subject.notice(reason, message, action=EventAction.FINISH, warning=True)
    left = remains(subject, subject.attempt, ended=subject.now, is_over=True).actions
    return subject.plan(status, actions=left, notice=notice)


def end_facts(attempt: Attempt, found: Sequence[Failure]) -> EndFacts:
    """What the Pods that failed said last, the cause first, and when that was."""
    containers = [(each, failed_container(each.pod, each.trainer)) for each in found[:KEPT_EXITS]]
    exits = tuple(_exit(each, container) for each, container in containers)
    cause = containers[0][1]
    mark = found[0].pod.condition(DISRUPTION_TARGET)
    told = mark.last_transition_time if found[0].said.symptom is Symptom.DISRUPTED and mark is not None else None
    written = told or ("" if cause is None else cause.ended)
    return EndFacts(exits, later(written, None, attempt.subject.now))


def _exit(failure: Failure, container: ContainerState | None) -> Exit:
    pod = failure.pod
    reason = pod.reason or ("" if container is None or container.reason == "Error" else container.reason)
    message = pod.message or ("" if container is None else container.message)
    return Exit(
        pod=pod.name,
        node=pod.node or None,
        exit_code=None if container is None else container.exit_code,
        reason=stated(reason, EXIT_REASON_MAX_LENGTH) or None,
        message=stated(message.strip(), EXIT_MESSAGE_MAX_LENGTH) or None,
    )


def _remedied(attempt: Attempt, pods: Sequence[Pod], *, is_fit: bool) -> Plan | None:
    """The next attempt with another setting, or elsewhere, if the error calls for it; a setting of the user's own stays
    as it is."""
    subject = attempt.subject
    called = called_for(pods, subject.job.status)
    if called is None:
        return None
    made, pod = called
    gang = attempt.gang()
    if isinstance(gang, Lost) or (made is Remedy.WITHOUT_NVLS and NVLS in gang.users_environment(Role.WORKER)):
        return None
    message = f"Pod {pod.name} of node {pod.node}: {made.value}"
    if made is Remedy.ELSEWHERE:
        return end(attempt, remedies.end_reason(made), message, unfit=whole(each.node for each in pods))
    again = again_on(attempt, is_fit=is_fit)
    lacks = degradation(replace(gang, remedies=gang.remedies | {made}), subject.cluster)
    return end(attempt, remedies.end_reason(made), message, again=again, lacks=lacks)


def _own_end(failure: Failure, template: Mapping[str, Any]) -> str:
    """How a Pod of this template failed by the job's own fault, and what to do if that is known."""
    pod, said = failure.pod, failure.said
    where = f"Pod {pod.name} on node {pod.node or '(none)'}"
    match said.symptom:
        case Symptom.OVER_ITS_STORAGE:
            return f"{where} was ended for the disk that it uses itself: {said.words}; {_raise('that limit')}"
        case Symptom.PAST_ITS_DEADLINE:
            told = f"{where} ran longer than activeDeadlineSeconds of its template allows: {said.words}"
            return f"{told}; raise it, or leave it out; {FIXED}"
    container = failed_container(pod, failure.trainer)
    if container is None:
        return f"{where} failed before a container ended"
    why = f" ({container.reason})" if container.reason not in {"", "Error"} else ""
    words = f": {said.words}" if said.words else ""
    if said.symptom is Symptom.OUT_OF_MEMORY:
        words = f"{words}; {_memory_words(template, container.name)}"
    return f"container {container.name} of {where} ended with exit code {container.exit_code}{why}{words}"


def _memory_words(template: Mapping[str, Any], container: str) -> str:
    """Advice for a container that was killed for its memory: by its own limit, or without one in the template by its
    node's memory, or a LimitRange."""
    try:
        asked = msgspec.convert(template, PodResourceSpec)
    except msgspec.ValidationError:  # no API server makes a Pod of it
        asked = PodResourceSpec()
    every = (*(asked.containers or ()), *(asked.init_containers or ()))
    holders = (asked.resources, *(each.resources for each in every if each.name == container))
    if any(each is not None and MEMORY in (each.limits or {}) for each in holders):
        return f"it used more memory than it may: {_raise('resources.limits.memory of the template')}"
    return (
        "its template sets no limit, so that its node had no more memory, or a LimitRange of the namespace sets one: "
        f"give resources.requests.memory and resources.limits.memory what it needs, or use less; {FIXED}"
    )


def _raise(limit: str) -> str:
    """Advice for a limit of the job's own that its Pods have exceeded."""
    return f"raise {limit}, or use less; {FIXED}"


def _all(number: int, noun: str) -> str:
    """`all 2 Pods`, `its one Pod`."""
    return f"its one {noun}" if number == 1 else f"all {number} {noun}s"
