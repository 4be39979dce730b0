"""What becomes of a job that does not fit now, if it waits and nothing else changes.

It starts with fewer GPUs, others make room for so many, or others move for it. The operator does any of these only for
a job that has waited, so the same decision is asked at that moment.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob import Defragment
from closeknit.api.trainingjob_status import Pending
from closeknit.cluster.booking.booking import names
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.status.conditions import moment
from closeknit.lifecycle.status.pending import traits
from closeknit.lifecycle.transitions.runs import WAITS_FOR_ALL
from closeknit.lifecycle.verdict import Await, Book, Verdict
from closeknit.placement.gang.cache import Tables
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.sentences import count, listed
from closeknit.scheduling.defragment.planned_moves import WAITS_FOR_ITSELF
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.schedule import schedule

# What jobs may cost that move grows with the wait of the gang: each step is twice as long, the last half a day.
_MOVED_AFTER = tuple(WAITS_FOR_ITSELF * 2**step for step in range(8))
_A_MOMENT = timedelta(seconds=1)


def after_a_wait(
    job: TrainingJob, pending: Pending, cluster: Cluster, tables: Tables, now: datetime
) -> tuple[str, ...]:
    """One clause each. `cluster` has the job, which waits there for `pending`."""
    if not traits(pending.reason).is_for_room:
        return ()
    status = job.status.model_copy(update={"pending": pending})
    there = cluster.with_job(job.model_copy(update={"status": status})).at(now)
    waits = _Waits(job, there, tables, now, moment(pending.queued_since or pending.since))
    return tuple(waits.told())


@dataclass(frozen=True, slots=True)
class _Waits:
    """A job that waits, in a cluster in which nothing else happens."""

    job: TrainingJob
    cluster: Cluster
    tables: Tables
    now: datetime
    since: datetime

    def told(self) -> Iterator[str]:
        """What becomes of it."""
        elastic, asked = self.job.spec.elastic, self.job.spec.gpus
        if elastic is not None and elastic.min_gpus < asked:
            match self._verdict(WAITS_FOR_ALL):
                case Book(placement):
                    yield f"once it has waited for a minute, it starts {_with(placement, asked)}, and grows later"
                    return
                case Await(awaits, _, Placement() as placement) if not any(each.moves for each in awaits):
                    who = _who([each.job for each in awaits], self.job.key.namespace)
                    make = "makes" if len(awaits) == 1 else "make"
                    room = f"{who} {make} room for it, by priority"
                    yield f"once it has waited for a minute, {room}, and it starts {_with(placement, asked)}"
                    return
        for wait in _MOVED_AFTER if _may_any_move(self.cluster.jobs.values()) else ():
            verdict = self._verdict(wait)
            if isinstance(verdict, Await) and verdict.placement is not None and all(e.moves for e in verdict.awaits):
                who = _moving([each.job for each in verdict.awaits], self.job.key.namespace)
                yield f"once it has waited for {_minutes(wait)}, {who}, and it starts on {_nodes(verdict.placement)}"
                return

    def _verdict(self, wait: timedelta) -> Verdict | None:
        """The verdict once it has waited so long; None where it has already."""
        at = self.since + wait + _A_MOMENT
        if at <= self.now:
            return None
        return schedule(self.cluster, self.tables, Memory(is_rationed=False), at)[self.job.key]


def _may_any_move(jobs: Iterable[TrainingJob]) -> bool:
    return any(each.spec.defragment is Defragment.PLANNED and each.status.placement is not None for each in jobs)


def _gpus(placement: Placement) -> int:
    return sum(len(share.gpus) for share in placement.shares)


def _nodes(placement: Placement) -> str:
    return names([share.node for share in placement.shares])


def _with(placement: Placement, asked: int) -> str:
    return f"with {_gpus(placement)} of its {count(asked, 'GPU')} on {_nodes(placement)}"


def _moving(jobs: Sequence[JobKey], namespace: str) -> str:
    return f"{_who(jobs, namespace)} {'moves' if len(jobs) == 1 else 'move'} elsewhere"


def _who(jobs: Sequence[JobKey], namespace: str) -> str:
    """These jobs, without names of other namespaces."""
    own = [str(each) for each in jobs if each.namespace == namespace]
    others = len(jobs) - len(own)
    told = [*own, *([f"{count(others, 'job')} of other namespaces"] if others else [])]
    return listed(told, "and")


def _minutes(wait: timedelta) -> str:
    return count(int(wait.total_seconds()) // 60, "minute")
