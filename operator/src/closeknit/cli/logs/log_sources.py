"""Which Pod a rank is in."""

from collections.abc import Sequence
from dataclasses import dataclass

from closeknit.api.names import JobKey, Role, child_name
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
    )


def _has(place: LogSource, rank: int) -> bool:
    first, _, last = place.ranks.partition("-")
    return first.isdecimal() and int(first) <= rank <= int(last or first)
