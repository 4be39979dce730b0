"""A gang that hangs, by its sidecars: which rank holds it up, on which GPU of which node, and what is told of it."""

from datetime import UTC, datetime

from closeknit.api.reasons import ConditionReason
from closeknit.api.trainingjob_status import BlamedDevice
from closeknit.cluster.pods.gang_runs import HangReport, HungRank, hang_report
from closeknit.lifecycle.attempt.attempt import Attempt
from closeknit.lifecycle.attempt.launched_gang import uuids
from closeknit.lifecycle.status.degraded import Degradation
from closeknit.lifecycle.transitions.ends import NO_FACTS, EndFacts

_TOLD = 4  # ranks in a message


def hanging(attempt: Attempt) -> HangReport | None:
    """What the sidecars say of a hang that lasts; None without one."""
    placement = attempt.subject.job.status.placement
    run = 0 if placement is None or placement.run is None else placement.run
    found = (hang_report(pod, run) for pod in attempt.present if pod.phase == "Running")
    return next((each for each in found if each is not None), None)


def told(attempt: Attempt) -> Degradation | None:
    """What a running gang is told of a hang; None without one."""
    found = hanging(attempt)
    if found is None:
        return None
    message = f"{words(attempt, found)}; restart.onHang: Restart would start it again"
    return Degradation(ConditionReason.HANGS, message)


def facts(found: HangReport) -> EndFacts:
    """Since when the gang hung."""
    since = found.at - found.still_seconds
    return EndFacts(fault=datetime.fromtimestamp(since, UTC)) if since > 0 else NO_FACTS


def words(attempt: Attempt, found: HangReport) -> str:
    """`the gang hangs: rank 5 (GPU 1 of node gpu-7) does not answer, and no rank called a collective for 41 s`."""
    if found.stalled is not None:
        return (
            f"the gang hangs: {_pod(attempt, found.stalled)} made no progress for {found.still_seconds} s by its file"
        )
    ranks = ", ".join(_rank(attempt, rank) for rank in found.ranks[:_TOLD])
    more = f" and {len(found.ranks) - _TOLD} more" if len(found.ranks) > _TOLD else ""
    is_one = len(found.ranks) == 1
    silent, behind = (
        ("does not answer", "is behind the others") if is_one else ("do not answer", "are behind the others")
    )
    why = silent if found.silent else behind
    return f"the gang hangs: {ranks}{more} {why}, and no rank called a collective for {found.still_seconds} s"


def blamed(attempt: Attempt, found: HangReport) -> tuple[BlamedDevice, ...]:
    """The GPU of a rank that has stopped, or the node of several. A rank that answers may wait for its program, and
    where ranks of several nodes have stopped none of them is known to be the cause."""
    shares = attempt.booking.shares
    ranks = found.ranks if found.silent and found.stalled is None else ()
    known = {(rank.index, rank.local) for rank in ranks if rank.index is not None and 0 <= rank.index < len(shares)}
    if len({index for index, _ in known}) != 1 or len(known) < len(set(ranks)):
        return ()
    index, local = min(known)
    share = shares[index]
    view = attempt.subject.cluster.nodes.get(share.node)
    held = () if view is None else uuids(view, share) or ()
    gpu = held[local] if len(known) == 1 and 0 <= local < len(held) else ""
    return (BlamedDevice(node=share.node, gpu=gpu or None),)


def _rank(attempt: Attempt, rank: HungRank) -> str:
    shares = attempt.booking.shares
    if rank.index is None or not 0 <= rank.index < len(shares) or not 0 <= rank.local < len(shares[rank.index].gpus):
        return f"local rank {rank.local} of the Pod with the address {rank.host}"
    share = shares[rank.index]
    return f"rank {share.first_rank + rank.local} (GPU {share.gpus[rank.local]} of node {share.node})"


def _pod(attempt: Attempt, index: int) -> str:
    shares = attempt.booking.shares
    return f"the Pod of node {shares[index].node}" if 0 <= index < len(shares) else "a Pod"
