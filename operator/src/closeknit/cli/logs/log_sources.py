"""Which Pod a rank is in."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from closeknit.api.names import JobKey, Role, child_name, child_named
from closeknit.api.trainingjob_status import EndedAttempt
from closeknit.cli.input.not_there import NotThere
from closeknit.cluster.booking.booking import decoded
from closeknit.cluster.booking.job import InvalidJob, job_from_builtins


@dataclass(frozen=True, slots=True)
class LogSource:
    """One Pod of the present attempt."""

    pod: str
    ranks: str
    """0-7, or 3."""
    node_rank: int


@dataclass(frozen=True, slots=True)
class RunBefore:
    """The run before the last restart."""

    attempt: int
    in_place: bool
    """In the same Pods as now, in containers that have ended."""
    ended_by: str
    """The Pod that ended it; empty where none did."""

    def source(self, job: str, now: LogSource) -> LogSource:
        """Where this Pod's ranks were then."""
        if self.in_place:
            return now
        name = child_name(job, self.attempt, Role.WORKER, now.node_rank)
        return replace(now, pod=self.ended_by if self.ended_by.startswith(f"{name}-r") else name)


@dataclass(frozen=True, slots=True)
class LogSources:
    """Where a job is, and what it does there."""

    job: JobKey
    state: str
    why: str
    """What is wrong or waited for; empty where all is well."""
    attempt: int
    all: tuple[LogSource, ...]
    """By node rank; none before it is placed."""
    last_failed: str
    """The Pod that ended its last run; empty where none did."""
    before: "RunBefore | None" = None
    """None where it has not restarted."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more is printed."""
        return self.state in ("Succeeded", "Failed")

    def chosen(self, ranks: Sequence[int], *, everyone: bool) -> tuple[LogSource, ...]:
        """Those of these ranks, each Pod once. Without any the one of rank 0, or of a job that has failed the one that
        ended it. Raises NotThere for a rank that there is not."""
        if everyone:
            return self.all
        if not ranks:
            ended = tuple(each for each in self.all if each.pod == self.last_failed and self.is_over)
            return ended or self.all[:1]
        chosen: dict[str, LogSource] = {}
        for rank in ranks:
            place = next((each for each in self.all if _has(each, rank)), None)
            if place is None and self.all:
                last = self.all[-1].ranks.rpartition("-")[2]
                raise NotThere(f"{self.job} has ranks 0 to {last}, and none of {rank}")
            if place is not None:
                chosen[place.pod] = place
        return tuple(chosen.values())

    def chosen_before(self, ranks: Sequence[int], *, everyone: bool) -> tuple[LogSource, ...]:
        """The same of the run before the last restart; without any rank the Pod that ended it. Raises NotThere."""
        before = self.before
        if before is None:
            raise NotThere(f"{self.job} has not restarted: there is no run before")
        job = self.job.name
        if not ranks and not everyone:
            now = next((each for each in self.all if before.in_place and each.pod == before.ended_by), None)
            first = self.all[0] if self.all else LogSource("", "-", 0)
            ended = child_named(before.ended_by)
            if now is None and ended is not None:
                return (replace(first, pod=before.ended_by, node_rank=ended.index),)
            return (before.source(job, now or first),)
        if not self.all:
            raise NotThere(f"{self.job} has no place now, so that no rank has one: leave out --rank and --all")
        return tuple(before.source(job, each) for each in self.chosen(ranks, everyone=everyone))


def places(body: object) -> LogSources:
    """Of the job's object. Raises NotThere for one that cannot be read."""
    job = job_from_builtins(body)
    if isinstance(job, InvalidJob):
        raise NotThere(f"{job.key} cannot be read: {job.error}")
    status, attempt = job.status, job.status.attempt or 1
    found = []
    if status.placement is not None:
        workers = [share for share in decoded(status.placement) if share.server is None]
        for node_rank, share in enumerate(workers):
            name = child_name(job.key.name, attempt, Role.WORKER, node_rank, share.replacement)
            ranks = share.ranks
            shown = str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]}-{ranks[-1]}" if ranks else "-"
            found.append(LogSource(name, shown, node_rank))
    last = status.attempts[-1] if status.attempts else None
    exits = (last.exits if last is not None else None) or []
    return LogSources(
        job=job.key,
        state=status.state.value if status.state is not None else "Queued",
        why=status.reason or "",
        attempt=attempt,
        all=tuple(found),
        last_failed=exits[0].pod if exits else "",
        before=_run_before(status.attempts, attempt, is_placed=bool(found)),
    )


def _run_before(ends: Sequence[EndedAttempt], attempt: int, *, is_placed: bool) -> RunBefore | None:
    """The last run that is not the present one, whose own end may be among these."""
    for end in reversed(ends):
        in_place = bool(end.in_place)
        if not is_placed or end.number < attempt or in_place:
            pod = end.exits[0].pod if end.exits else ""
            return RunBefore(end.number, in_place and is_placed and end.number == attempt, pod)
    return None


def _has(place: LogSource, rank: int) -> bool:
    first, _, last = place.ranks.partition("-")
    return first.isdecimal() and int(first) <= rank <= int(last or first)
