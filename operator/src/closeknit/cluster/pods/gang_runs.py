"""What the sidecars of a gang that restarts in place tell, in the statuses of their Pods."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from enum import Enum

import msgspec

from closeknit.api.names import BARRIER_CONTAINER, SIDECAR_CONTAINER, Role
from closeknit.api.text.nccl_version import NcclVersion
from closeknit.cluster.pods.pod import Pod

_LARGEST_RUN = 1 << 53
_LARGEST_CODE = 255
_LONGEST_STILL_S = 1e9  # thirty years
_LATEST = 1e11  # seconds of Unix time, in the year 5138


class EndOfTrainer(msgspec.Struct, frozen=True):
    """How the trainer of a Pod ended in its last run, by the wrapper around it."""

    code: int
    at: float
    """When, in seconds of Unix time by its node's clock."""
    was_told: bool = False
    """Whether it had been told to end before: then that is no cause of anything."""
    words: str = ""
    """Its termination message."""


class HungRank(msgspec.Struct, frozen=True):
    """One rank that holds its gang up."""

    local: int
    """Its local rank, by CUDA's number of its GPU."""
    index: int | None = None
    """Position of its Pod in the gang; None where only its address is known."""
    host: str = ""
    """Address of its Pod, as NCCL sees it."""


class HangReport(msgspec.Struct, frozen=True, rename="camel"):
    """A gang that hangs, by its sidecars."""

    still_seconds: int
    """How long it had made no progress by then."""
    at: float = 0.0
    """When that was told, in seconds of Unix time by the node's clock; 0 where it is not known."""
    silent: bool = False
    """Whether the ranks do not answer NCCL's RAS; else they are behind the others."""
    ranks: tuple[HungRank, ...] = ()
    stalled: int | None = None
    """Position of the Pod whose trainer no longer touches its file of progress; None where RAS told."""


class _Told(msgspec.Struct, frozen=True, rename="camel"):
    run: int = -1
    hang: HangReport | None = None
    first_step: int | None = None
    nccl: str | None = None


class RunReport(msgspec.Struct, frozen=True):
    """A Pod's barrier that has ended."""

    run: int | None = None
    """The run that it let its Pod go for, from 0: how often the gang has started again in these Pods. None where it
    gave up."""
    why: str = ""
    """Why it gave up."""
    ended: EndOfTrainer | None = None
    """Of the run before; None without one, or where nothing is known of it."""
    hang: HangReport | None = None
    """For what the sidecars ended the run before; None where it did not hang."""


_decode = msgspec.json.Decoder(RunReport).decode
_decode_told = msgspec.json.Decoder(_Told).decode


def run_report(pod: Pod) -> RunReport | None:
    """What the Pod's barrier said last; None while it waits, and where it has said nothing that can be read."""
    for container in pod.containers:
        if container.init and container.name == BARRIER_CONTAINER and container.exit_code is not None:
            try:
                report = _decode(container.message)
            except (msgspec.DecodeError, ValueError, RecursionError):
                return None
            return report if _is_possible(report) else None
    return None


def gave_up(pod: Pod) -> str:
    """Why the Pod's barrier gave up, by which the Pod failed; empty where it did not."""
    report = run_report(pod) if pod.phase == "Failed" else None
    return report.why if report is not None and report.run is None else ""


def hang_report(pod: Pod, run: int) -> HangReport | None:
    """What the Pod's sidecar says of a hang in this run that lasts; None without one, and for words that cannot be
    read."""
    told = _told(pod, run)
    return told.hang if told is not None and told.hang is not None and _is_told_whole(told.hang) else None


def first_step_at(pod: Pod, run: int) -> datetime | None:
    """When its trainer first touched its file of progress in this run, by its node's clock; None where that is not
    told."""
    told = _told(pod, run)
    at = None if told is None else told.first_step
    return datetime.fromtimestamp(at, UTC) if at is not None and 0 <= at < _LATEST else None


def nccl_version(pod: Pod) -> NcclVersion | None:
    """Version of its trainer's NCCL, as RAS told its sidecar; None where that is not told."""
    told = _said(pod)
    return None if told is None else NcclVersion.parse(told.nccl)


def _told(pod: Pod, run: int) -> _Told | None:
    told = _said(pod)
    return told if told is not None and told.run == run else None


def _said(pod: Pod) -> _Told | None:
    said = next((each.said for each in pod.containers if each.name == SIDECAR_CONTAINER), "")
    if not said:
        return None
    try:
        return _decode_told(said)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def let_go_at(pod: Pod) -> str:
    """When its barrier ended, by its node's clock; empty before."""
    return next((each.ended for each in pod.containers if each.init and each.name == BARRIER_CONTAINER), "")


class GangLink(Enum):
    """Whether the sidecar of node rank 0 hears those of all other Pods of its gang, each of which reports every 2 s. A
    few others tell the same, as node rank 0 answers them. It is the word of the kubelet of the teller's node: where
    that is silent, it is an old one."""

    WHOLE = "all Pods of the gang were heard within 10 s"
    BROKEN = "a Pod of the gang has not been heard for 10 s, or not yet"
    WAITING = "its Pods wait for each other to begin again"
    UNKNOWN = "its Pods have no sidecar, or none that tells runs where a kubelet is heard"


MOST_TELLERS = 8  # each costs a write of its Pod's status when a rank is lost, and one when it is back


def tellers(workers: int) -> tuple[int, ...]:
    """Node ranks whose sidecars tell of the whole gang, in the order in which they are believed. They are spread over
    it, so that a rack whose kubelets are silent has not all of them."""
    last, steps = workers - 1, MOST_TELLERS - 1
    return (
        tuple(range(workers)) if workers <= MOST_TELLERS else tuple(last * step // steps for step in range(steps + 1))
    )


def gang_link(pods: Iterable[Pod], workers: int, is_heard: Callable[[str], bool]) -> GangLink:
    """That of the Pods of one attempt. `is_heard`: whether the kubelet of this node is."""
    told = {pod.child.index: pod for pod in pods if pod.child is not None and pod.child.role is Role.WORKER}
    for teller in tellers(workers):
        pod = told.get(teller)
        if pod is None or not is_heard(pod.node or ""):
            continue
        running = {each.name: each for each in pod.containers if each.running}
        if BARRIER_CONTAINER in running:
            return GangLink.WAITING
        if (sidecar := running.get(SIDECAR_CONTAINER)) is not None:
            return GangLink.WHOLE if sidecar.is_ready else GangLink.BROKEN
    return GangLink.UNKNOWN


def is_unready_by_sidecar(pod: Pod) -> bool:
    """Whether a Pod is not ready for nothing but that its sidecar does not hear the whole gang."""
    ready = pod.condition("Ready")
    return ready is not None and ready.message == f"containers with unready status: [{SIDECAR_CONTAINER}]"


def _is_told_whole(hang: HangReport) -> bool:
    """Whether it says who, and for how long: the trainer could write it, too."""
    is_of_time = 0 <= hang.still_seconds < _LONGEST_STILL_S and 0 <= hang.at < _LATEST
    return is_of_time and (bool(hang.ranks) or hang.stalled is not None)


def _is_possible(report: RunReport) -> bool:
    ended, hang = report.ended, report.hang
    return (
        (report.run is None or 0 <= report.run < _LARGEST_RUN)
        and (ended is None or (0 <= ended.code <= _LARGEST_CODE and 0 <= ended.at < _LATEST))
        and (hang is None or _is_told_whole(hang))
    )
