"""Results of a gang's preflights, from their containers' termination messages, and their effect."""

from collections.abc import Sequence

import msgspec

from closeknit.api.reasons import ConditionReason, EndReason
from closeknit.api.text.printable import printable
from closeknit.api.trainingjob import Preflight
from closeknit.cluster.booking.booking import BookingShare, names
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.pods.pod import ContainerState, Pod
from closeknit.cluster.pods.symptoms import NOT_STARTED
from closeknit.launch.manifests.preflight_container import SHELL, left_out_since
from closeknit.launch.template import PREFLIGHT
from closeknit.lifecycle.attempt.attempt import Attempt
from closeknit.lifecycle.attempt.remedies import called_for
from closeknit.lifecycle.health.attempt_end import end, whole
from closeknit.lifecycle.status.degraded import Degradation
from closeknit.lifecycle.writes.plan import Plan
from closeknit.machine.graph import Machine
from closeknit.placement.allreduce.bandwidth import nearest_nics

MOST_IN_A_ROW = 3  # attempts; the one after fails the job
_SHOWN = 300  # characters of what a container said


class PreflightFinding(msgspec.Struct, frozen=True):
    """One node's preflight; unmeasured values are absent. The text comes from a container, so it counts only as words
    and numbers."""

    inside: float | None = None
    """Bus bandwidth among the ranks of this node, GB/s."""
    world: float | None = None
    """Bus bandwidth among all ranks, GB/s."""
    below: bool = False
    """Whether that is far below the prediction."""
    slow: tuple[int, ...] = ()
    """Node ranks that are slower inside than the others."""
    link: tuple[int, ...] = ()
    """Node ranks of the slowest two neighbours, where all ranks together are slow."""
    ranks: tuple[int, ...] = ()
    """The two global ranks, on the slow node or at the ends of the slow link, that are far slower than others there."""
    nccl: str | None = None
    """Version of NCCL that it ran over."""
    skipped: str = ""
    """Why nothing was measured."""
    error: str = ""
    """Why it failed."""


_decode = msgspec.json.Decoder(PreflightFinding).decode


def finding(pod: Pod) -> PreflightFinding | None:
    """The result of a Pod's preflight; None where it has not ended, or cannot be read."""
    for container in pod.containers:
        if container.name == PREFLIGHT and container.init and container.exit_code is not None:
            try:
                return _decode(container.message)
            except (msgspec.DecodeError, ValueError, RecursionError):
                return PreflightFinding(error=container.message) if container.exit_code else None
    return None


def shown(attempt: Attempt) -> Degradation | None:
    """The message about a gang whose preflights have ended; None where all is well, or the job wanted none."""
    if attempt.subject.job.spec.preflight is Preflight.NEVER:
        return None
    if (before := left_out_since(attempt.subject.job.status)) is not None:
        words = f"no preflight is run: in attempt {before.number} {before.message or 'it could not'}"
        return Degradation(ConditionReason.PREFLIGHT_SKIPPED, words)
    found = [each for pod in attempt.present if (each := finding(pod)) is not None]
    if skipped := next((each.skipped for each in found if each.skipped), ""):
        words = f"no preflight was run: {printable(skipped, _SHOWN)}"
        return Degradation(ConditionReason.PREFLIGHT_SKIPPED, words)
    wrong = _words(attempt, found)
    return None if wrong is None else Degradation(ConditionReason.PREFLIGHT_FAILED, f"preflight: {wrong}")


def failed(attempt: Attempt, pods: Sequence[Pod]) -> Plan | None:
    """The next attempt without the nodes that an enforced preflight found slow; without a preflight if it could not
    run. None where no failed Pod failed by its preflight, where NCCL's error calls for another setting, and after too
    many attempts."""
    mine = [(pod, each) for pod in pods for each in pod.containers if each.name == PREFLIGHT and each.exit_code]
    if not mine:
        return None
    if called_for(pods, attempt.subject.job.status) is not None:
        return None
    if (lame := next((each for _, each in mine if _could_not_run(attempt, each)), None)) is not None:
        said = printable(lame.message.strip()[-_SHOWN:]) or lame.reason or "no word"
        message = f"its preflight could not run (exit code {lame.exit_code}: {said}); the job starts again without one"
        return end(attempt, EndReason.PREFLIGHT_SKIPPED, message)
    return _failed(attempt, [pod for pod, _ in mine])


def _could_not_run(attempt: Attempt, container: ContainerState) -> bool:
    """Whether the preflight itself did not run. With `Warn` the program always succeeds, so something killed it. Other
    obstacles to a container's start are its node's fault."""
    if container.reason in NOT_STARTED:
        return SHELL in container.message
    return attempt.subject.job.spec.preflight is Preflight.WARN


def _failed(attempt: Attempt, mine: Sequence[Pod]) -> Plan | None:
    if attempt.before_it_ended_by(EndReason.PREFLIGHT_FAILED) >= MOST_IN_A_ROW:
        return None
    shares = attempt.booking.shares
    found = [each for pod in mine if (each := finding(pod)) is not None]
    unfit = sorted({shares[rank].node for rank in _named(shares, found)})
    if not unfit and any(each.error for each in found):
        unfit = sorted({pod.node for pod in mine if pod.node})
    message = f"preflight: {_words(attempt, found) or 'it failed without a word'}; the job is placed again"
    return end(attempt, EndReason.PREFLIGHT_FAILED, message, unfit=whole(unfit))


def _named(shares: Sequence[BookingShare], found: Sequence[PreflightFinding]) -> set[int]:
    """Node ranks that are to blame: slow nodes, else both ends of a slow link, else all."""
    workers = len([share for share in shares if share.server is None])
    slow = {rank for each in found for rank in each.slow}
    blamed = slow or {rank for each in found for rank in each.link}
    if not blamed and any(each.below for each in found):
        blamed = set(range(workers))
    return {rank for rank in blamed if 0 <= rank < workers}


def _words(attempt: Attempt, found: Sequence[PreflightFinding]) -> str | None:
    """The fault with nodes, GPUs and NICs; None where there is none."""
    shares = attempt.booking.shares
    if error := next((each.error for each in found if each.error), ""):
        return f"the all-reduce failed: {printable(error.strip()[-_SHOWN:])}"
    named = sorted(_named(shares, found))
    if not named:
        return None
    nodes = names([shares[rank].node for rank in named])
    ends = " and ".join(_ends(attempt, found))
    if any(each.slow for each in found):
        words = f"{nodes} {'is' if len(named) == 1 else 'are'} slower inside than the other nodes of the gang"
        return f"{words}; slowest is what joins {ends}" if ends else words
    reached = next((each.world for each in found if each.world is not None), None)
    got = "" if reached is None else f": all ranks reach {reached:.1f} GB/s together"
    if not any(each.link for each in found):
        return f"{nodes} {'is' if len(named) == 1 else 'are'} slower than predicted{got}"
    return f"the slowest link is that between {nodes}{got}" + (f"; slowest on it is that of {ends}" if ends else "")


def _ends(attempt: Attempt, found: Sequence[PreflightFinding]) -> list[str]:
    """The two GPUs of the slowest ranks, with their NICs if these are on two nodes; none unless there are two such
    ranks."""
    told = next((each.ranks for each in found if each.ranks), ())
    ends = [
        (share, rank - share.first_rank) for rank in told for share in attempt.booking.shares if rank in share.ranks
    ]
    if len(ends) != 2:
        return []
    is_link = ends[0][0] is not ends[1][0]
    return [_gpu(attempt.subject.cluster, *end, with_nics=is_link) for end in ends]


def _gpu(cluster: Cluster, share: BookingShare, local_rank: int, *, with_nics: bool) -> str:
    gpu = share.gpus[local_rank]
    view = cluster.nodes.get(share.node)
    nics = _nics(view.machine, share, gpu) if with_nics and view is not None and view.machine is not None else []
    return f"GPU {gpu}{' by ' + ', '.join(nics) if nics else ''} of {share.node}"


def _nics(machine: Machine, share: BookingShare, gpu: int) -> list[str]:
    """The share's NICs nearest to one of its GPUs, as name:port."""
    position = next((at for at, each in enumerate(machine.gpus) if each.index == gpu), None)
    if position is None:
        return []
    mine = {nic.transport for nic in machine.nics if f"{nic.name}:{nic.port}" in share.nics}
    rows = sorted(row for transport in mine for row in nearest_nics(machine, transport, (position,)))
    near = [f"{machine.nics[row].name}:{machine.nics[row].port}" for row in rows]
    return [name for name in near if name in share.nics]
