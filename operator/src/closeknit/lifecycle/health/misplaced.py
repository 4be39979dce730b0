"""Restart of a gang whose Pods got slower GPUs from device plugins than planned, a few times at most.

A plugin picks by itself; that it picks what was foreseen fails when somebody takes or frees GPUs in between. Other GPUs
that are as fast are kept, for a restart would gain nothing; and so is what trains already for a while.
"""

from collections.abc import Sequence
from datetime import timedelta

from closeknit.api.reasons import ConditionType, EndReason
from closeknit.api.trainingjob_status import Actual, Binding
from closeknit.cluster.booking.booking import BookingShare
from closeknit.cluster.pods.pod import Pod
from closeknit.lifecycle.attempt.attempt import Attempt
from closeknit.lifecycle.attempt.launched_gang import uuids
from closeknit.lifecycle.attempt.verification import difference, few, got
from closeknit.lifecycle.health.attempt_end import end
from closeknit.lifecycle.status.conditions import found, moment
from closeknit.lifecycle.writes.plan import Plan
from closeknit.machine.graph import Machine
from closeknit.placement.allreduce.bandwidth import set_bandwidth
from closeknit.placement.allreduce.paths import pcie_tree

MOST_IN_A_ROW = 2  # attempts; the third keeps what it got
# An agent tells of a Pod's GPUs within ten seconds. What it tells much later, because it was down, costs what the job
# has trained since.
YOUNG_FOR = timedelta(minutes=2)


def misplaced(attempt: Attempt) -> Plan | None:
    """The end of an attempt whose Pods have slower GPUs than planned; None where it keeps what it has."""
    wrong = [
        difference(attempt.subject.cluster, share, pod)
        for share, pod in zip(attempt.shares, attempt.pods, strict=True)
        if pod is not None and _is_slower(attempt, share, pod)
    ]
    if not wrong or not _is_young(attempt) or attempt.before_it_ended_by(EndReason.MISPLACED) >= MOST_IN_A_ROW:
        return None
    message = f"device plugins gave slower GPUs than planned: {few(wrong)}; the job is placed again"
    return end(attempt, EndReason.MISPLACED, message)


def _is_slower(attempt: Attempt, share: BookingShare, pod: Pod) -> bool:
    """Whether it is new that the Pod has slower GPUs than planned; a stored result is kept."""
    if share.binding is not Binding.BEST_EFFORT or share.actual is Actual.MISMATCH or pod.node != share.node:
        return False
    view = attempt.subject.cluster.nodes.get(share.node)
    given = got(attempt.subject.cluster, share, pod)
    planned = None if view is None else uuids(view, share)
    if view is None or view.machine is None or given is None or planned is None or given == tuple(sorted(planned)):
        return False
    speed_gb_s, planned_gb_s = _speed_gb_s(view.machine, given), _speed_gb_s(view.machine, planned)
    return speed_gb_s is not None and planned_gb_s is not None and speed_gb_s < planned_gb_s


def _speed_gb_s(machine: Machine, chosen: Sequence[str]) -> float | None:
    """Ring bandwidth of a set; None where the machine does not know a GPU of it."""
    positions = [position for position, gpu in enumerate(machine.gpus) if gpu.uuid in chosen]
    if len(positions) != len(chosen):
        return None
    return set_bandwidth(machine, pcie_tree(machine), positions).order_gb_s


def _is_young(attempt: Attempt) -> bool:
    running = found(attempt.subject.job.status.conditions, ConditionType.RUNNING)
    if running is None or running.status != "True":
        return True
    return attempt.subject.now < moment(running.last_transition_time) + YOUNG_FOR
