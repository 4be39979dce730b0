"""The end of an attempt, and its effect on the job."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType

from closeknit.api.names import Role, service_name
from closeknit.api.reasons import EndReason, EventAction
from closeknit.api.text.quantity import duration_s
from closeknit.api.trainingjob import MAX_RESTARTS, Restart
from closeknit.api.trainingjob_status import Binding, BlamedDevice, UnfitNode
from closeknit.cluster.booking.booking import BookingShare
from closeknit.cluster.node.node import NodeView
from closeknit.cluster.objects.dra import ResourceClaim
from closeknit.cluster.objects.node_objects import UNSCHEDULABLE_TAINT
from closeknit.cluster.pods.pod import Pod
from closeknit.cluster.pods.symptoms import Symptom
from closeknit.launch.environment.nccl import NVLS
from closeknit.launch.remedy import Remedy
from closeknit.lifecycle.attempt import avoided_nodes, remedies
from closeknit.lifecycle.attempt.attempt import Attempt
from closeknit.lifecycle.attempt.avoided_nodes import Unfit
from closeknit.lifecycle.attempt.blocking_pods import Leftover, told
from closeknit.lifecycle.attempt.ended_pods import remains
from closeknit.lifecycle.attempt.launched_gang import Lost, uuids
from closeknit.lifecycle.attempt.remedies import called_for
from closeknit.lifecycle.attempt.subject import NOTE_MAX_LENGTH, Subject, deletions
from closeknit.lifecycle.failures import device_health
from closeknit.lifecycle.failures.dead_nodes import dead_nodes
from closeknit.lifecycle.failures.device_health import ill_devices, words
from closeknit.lifecycle.failures.kept_shares import kept, placed_as_a_whole
from closeknit.lifecycle.failures.pod_failures import (
    BY_DEVICES,
    Failure,
    end_facts,
    failure_words,
    failures,
    own_end,
    silent_nodes,
    trainers_exit_code,
)
from closeknit.lifecycle.failures.staying_pods import ALL_LOST, NO_SIDECAR, cannot_stay, farewells
from closeknit.lifecycle.restart.restart_decision import EndOfRun, Fails, StartsAgain, charges, judge
from closeknit.lifecycle.status import lost_time
from closeknit.lifecycle.status.blame import Blame, Follows, Row, end_reason
from closeknit.lifecycle.status.conditions import stated, timestamp
from closeknit.lifecycle.status.degraded import Degradation, degradation
from closeknit.lifecycle.status.pauses import deleted_at
from closeknit.lifecycle.transitions import ends
from closeknit.lifecycle.transitions.ends import NO_FACTS, EndFacts
from closeknit.lifecycle.writes.plan import Delete, Plan
from closeknit.placement.values.sentences import count

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
    return end(attempt, end_reason(first.said.symptom), f"{failure_words(first)}{more}{then}", unfit=unfit, facts=facts)


def _blamed(attempt: Attempt, found: Sequence[Failure]) -> tuple[BlamedDevice, ...]:
    """The nodes and GPUs that ended a run. A node that refuses a Pod, or has no room for it, has ended none; nor has a
    silent one where none of its own Pods has failed, until it is known to be dead: a blip is no death."""
    first = found[0].said.symptom
    if first in BY_DEVICES:
        ill = [each for each in ill_devices(attempt) if each.share.node == found[0].share.node]
        return device_health.blamed(
            each
            for each in ill
            if (each.is_dead if first is Symptom.GPU_DEAD else each.is_gpu is (first is Symptom.GPU_ILL_AT_EXIT))
        )
    if first is Symptom.NODE_NOT_READY:
        ended = {each.pod.node for each in found}.union(dead_nodes(attempt))
        return _there(attempt, ended.intersection(silent_nodes(attempt)))
    return _there(attempt, [each.pod.node for each in found if each.said.symptom is Symptom.CONTAINER_LOST])


def _unfit(attempt: Attempt, found: Sequence[Failure]) -> Unfit:
    """The nodes that mishandled Pods, or only the GPU that a node's driver names."""
    nodes = whole(each.share.node for each in found if each.row.follows is Follows.ELSEWHERE)
    shares = [
        each.share for each in found if each.row.follows is Follows.OTHER_GPUS and each.said.symptom not in BY_DEVICES
    ]
    return {**{share.node: gpus_or_node(attempt, share) for share in shares}, **nodes}


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
    workers, added = attempt.booking.workers, attempt.added
    message = f"{_all(len(attempt.pods) - added, 'Pod')} ended with exit code 0"
    if not all(share.succeeded for share in attempt.shares[: workers - added]):
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


def _all(number: int, noun: str) -> str:
    """`all 2 Pods`, `its one Pod`."""
    return f"its one {noun}" if number == 1 else f"all {number} {noun}s"
