"""Words about a booking: where it is, what harms it there, whose nodes are lent to it, and why others make room."""

from collections.abc import Sequence

from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import EventAction, EventReason, PendingReason
from closeknit.api.trainingjob_status import PlacementStatus
from closeknit.cluster.booking.booking import AwaitedAttempt, assignments, names
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.attempt.subject import Subject
from closeknit.lifecycle.restart.lemons import lemons_of
from closeknit.lifecycle.status.preference import unknown_preference
from closeknit.lifecycle.writes.plan import Notice
from closeknit.placement.values.sentences import count


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


def reason_of(awaited: Sequence[AwaitedAttempt]) -> PendingReason:
    """Why a job waits for which these make room."""
    moves = all(each.moves for each in awaited)
    return PendingReason.MOVE_PENDING if moves else PendingReason.PREEMPTION_PENDING
