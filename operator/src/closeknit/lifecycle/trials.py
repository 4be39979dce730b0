"""How often refused jobs of one namespace are given GPUs on trial, so that they keep them from nobody else.

A job that a quota or a policy refused is tried again, and while the API server is asked its GPUs count as taken: some
tenths of a second. Hundreds of such jobs, each at the end of a pause of its own or new, as all are to an operator that
has just started, would take turns on a cluster that stands idle. So when the API server has refused a job of a
namespace, none of that namespace is tried for a while, and then those whose own pause is over.
"""

from datetime import datetime, timedelta

from closeknit.api.names import JobKey
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.answers import NOTHING, Answers
from closeknit.lifecycle.memory import Memory
from closeknit.lifecycle.pauses import is_between
from closeknit.lifecycle.verdict import Cause, Refusal

# Many times as long as a trial takes (0.2 s measured, of three decisions): what is free is free for others meanwhile.
BETWEEN = timedelta(seconds=2)


class Trials:
    """When a job of each namespace was last refused by the API server, found when it is first asked for."""

    def __init__(self, cluster: Cluster, memory: Memory, now: datetime) -> None:
        self._cluster = cluster
        self._answers = memory.answers
        self._now = now
        self._refused_at: dict[str, datetime] | None = None

    def refusal(self, job: JobKey, answers: Answers) -> Refusal | None:
        """Why a job is not given GPUs now; None where it may be."""
        at, rejection = self._last(job.namespace), answers.rejection
        if at is None or not is_between(at, self._now, at + BETWEEN):
            return None
        if rejection is None:
            return Refusal(Cause.NOT_ASKED, until=at + BETWEEN)
        return Refusal(Cause.REFUSED, rejection.reason, rejection.message, until=at + BETWEEN)

    def _last(self, namespace: str) -> datetime | None:
        if self._refused_at is None:
            self._refused_at = {}
            for key, each in self._cluster.jobs.items():
                told = self._answers.get(each.metadata.uid or "", NOTHING).rejection
                if told is not None:
                    self._refused_at[key.namespace] = max(told.at, self._refused_at.get(key.namespace, told.at))
        return self._refused_at.get(namespace)
