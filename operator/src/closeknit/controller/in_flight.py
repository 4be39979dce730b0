"""A job that is left alone: its Plan is being written, or was and is not seen yet, or it waits after an error, or it is
written to so often that this leads nowhere."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from closeknit.api.names import TRAINING_JOB, JobKey
from closeknit.cluster.store.watched_kinds import Stream
from closeknit.controller.watched_cluster import WatchedCluster
from closeknit.lifecycle.writes.child_kinds import CHILD_KINDS
from closeknit.lifecycle.writes.plan import Create
from closeknit.lifecycle.writes.results import (
    ChildRefused,
    Created,
    Deleted,
    DenialKind,
    Exists,
    Failed,
    Result,
    StatusStored,
    Stopped,
)

END_SEEN_S = 5.0  # a deletion, or an end, that is not seen by then is asked for again

# Plans of one job that are written as soon as they are decided, and then so many a second. No job of 120 lives had more
# than 7 beyond one a second.
PLANS_AT_ONCE = 30
PLANS_PER_S = 1.0


@dataclass(slots=True)
class InFlight:
    """One job's place in the queue while that is so."""

    is_kept: bool = True
    """Whether what the job would get is kept for it meanwhile; not where what stopped it may last."""
    is_writing: bool = True
    versions: Mapping[Stream, str] = field(default_factory=dict)
    """What must be seen of each stream before the job is decided on again."""
    deleted: tuple[tuple[str, str], ...] = ()
    """What was deleted, as (name, uid), whose end must be seen, too, but no later than ends_awaited_until."""
    gone: tuple[tuple[str, str], ...] = ()
    """Pods that were to be changed and are not there any more, likewise."""
    ends_awaited_until: float = 0.0
    not_before: float = 0.0

    def is_over(self, job: JobKey, watched: WatchedCluster, time: float) -> bool:
        """Whether the job can be decided on again."""
        if self.is_writing or time < self.not_before:
            return False
        if not all(watched.has_seen(source, version) for source, version in self.versions.items()):
            return False
        return time >= self.ends_awaited_until or not (
            any(watched.is_there(job, name, uid) for name, uid in self.deleted)
            or any(watched.is_shown(job, name, uid) for name, uid in self.gone)
        )

    def is_status_seen(self, watched: WatchedCluster) -> bool:
        """Whether what is shown of the job is what was written, or newer."""
        return not self.is_writing and watched.has_seen(
            Stream.TRAINING_JOBS, self.versions.get(Stream.TRAINING_JOBS, "")
        )


class HastyError(Exception):
    """A job is written to again and again."""

    def __init__(self) -> None:
        super().__init__(
            f"{PLANS_AT_ONCE} writes of one job in a row did not settle it; it is now written to {PLANS_PER_S:g} times "
            "a second at most. Either the decision goes in a circle, or somebody undoes what it writes"
        )


@dataclass(slots=True)
class Pace:
    """How many Plans of a job may still be written without a pause: what goes round in a circle is to cost the API
    server little."""

    left: float = PLANS_AT_ONCE
    at: float = float("-inf")
    is_told: bool = False
    """Whether it is known that they are too many, until half of them are left again."""

    def count_plan(self, time: float) -> float:
        """Counts a Plan that was written now, and gives for how many seconds to leave the job alone after it."""
        self.left = min(PLANS_AT_ONCE, self.left + (time - self.at) * PLANS_PER_S) - 1
        self.at = time
        self.is_told = self.is_told and self.left < PLANS_AT_ONCE / 2
        return max(0.0, -self.left / PLANS_PER_S)


def versions(results: Iterable[Result]) -> dict[Stream, str]:
    """The newest resourceVersion of each stream that was written to."""
    newest: dict[Stream, str] = {}
    for result in results:
        match result:
            case StatusStored(version=version):
                source: Stream | None = Stream.TRAINING_JOBS
            case Created(manifest, version, is_probe=False) | Exists(manifest, version=version, is_probe=False):
                source = CHILD_KINDS[manifest["kind"]].stream
            case Stopped(version=version):
                source = Stream.CHILD_PODS
            case _:
                continue
        if source is not None:
            newest[source] = newer(version, newest.get(source, ""))
    return newest


def newer(version: str, other: str) -> str:
    """The newer one of two versions of a resource; what is no number says nothing."""
    return max(version, other, key=lambda each: int(each) if each.isdecimal() else -1)


def unanswered(job: JobKey, results: Iterable[Result]) -> Iterator[tuple[Stream, str, str]]:
    """What may have been stored though no answer says so: the job's status, or children that a stream shows, as that
    stream, the kind and the name. Until it is known whether they are there, nobody else may get what they hold."""
    for result in results:
        match result:
            case Failed(action=None, denial=denial) if denial.failure is DenialKind.LOST:
                yield Stream.TRAINING_JOBS, TRAINING_JOB, job.name
            case ChildRefused(manifest, denial, is_probe=False) | Failed(Create(manifest), denial) if (
                denial.failure is DenialKind.LOST
            ):
                if (source := CHILD_KINDS[manifest["kind"]].stream) is not None:
                    yield source, manifest["kind"], manifest["metadata"]["name"]


def deletions(results: Iterable[Result]) -> tuple[tuple[str, str], ...]:
    """What was to be deleted and whose end matters, as (name, uid): children, or the job itself."""
    asked = (result.action for result in results if isinstance(result, Deleted))
    return tuple(
        (action.name, action.uid)
        for action in asked
        if action.uid and (action.kind == TRAINING_JOB or CHILD_KINDS[action.kind].is_awaited)
    )


def gone(results: Iterable[Result]) -> tuple[tuple[str, str], ...]:
    """Pods that were to be stopped or told a size, and that the API server no longer has, as (name, uid)."""
    return tuple(
        (result.action.name, result.action.uid)
        for result in results
        if isinstance(result, Stopped) and not result.version
    )
