"""How often refused jobs of one namespace are given GPUs on trial, so that they keep them from nobody else.

A job that a quota or a policy refused is tried again, and while the API server is asked its GPUs count as taken: some
tenths of a second. Hundreds of such jobs, each at the end of a pause of its own or new, as all are to an operator that
has just started, would take turns on a cluster that stands idle. So when the API server has refused a job of a
namespace, none of that namespace is tried for a while, and then those whose own pause is over. Where what refused the
one may well refuse the others, they are told so at once, and not one by one as their turns come.
"""

from datetime import datetime, timedelta

from closeknit.api.names import JobKey, PendingReason
from closeknit.api.objects import TrainingJob
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.answers import NOTHING, Answers, Rejection
from closeknit.lifecycle.memory import Memory
from closeknit.lifecycle.pauses import is_between
from closeknit.lifecycle.verdict import Cause, Refusal

# Many times as long as a trial takes (0.2 s measured, of three decisions): what is free is free for others meanwhile.
BETWEEN = timedelta(seconds=2)
# What is refused for these is refused to the namespace rather than to the one job.
_OF_NAMESPACE = frozenset({PendingReason.QUOTA_EXCEEDED, PendingReason.NAMESPACE_NOT_SERVED})


class Trials:
    """The newest refusal of the API server in each namespace, found when it is first asked for."""

    def __init__(self, cluster: Cluster, memory: Memory, now: datetime) -> None:
        self._cluster = cluster
        self._answers = memory.answers
        self._now = now
        self._newest: dict[str, Rejection] | None = None

    def refusal(self, job: JobKey, answers: Answers) -> Refusal | None:
        """Why a job is not given GPUs now; None where it may be."""
        newest = self._newest_of(job.namespace)
        if newest is None or not is_between(newest.at, self._now, newest.at + BETWEEN):
            return None
        until = newest.at + BETWEEN
        if answers.rejection is not None:
            return Refusal(Cause.REFUSED, answers.rejection.reason, answers.rejection.message, until=until)
        if newest.reason in _OF_NAMESPACE:
            return Refusal(Cause.REFUSED, newest.reason, behind_words(job.namespace, newest.reason), until=until)
        return Refusal(Cause.NOT_ASKED, until=until)

    def _newest_of(self, namespace: str) -> Rejection | None:
        if self._newest is None:
            self._newest = {}
            for key, each in self._cluster.jobs.items():
                told = self._answers.get(each.metadata.uid or "", NOTHING).rejection
                before = self._newest.get(key.namespace)
                if told is not None and (before is None or (told.at, told.reason) > (before.at, before.reason)):
                    self._newest[key.namespace] = told
        return self._newest.get(namespace)


def is_behind(job: TrainingJob) -> bool:
    """Whether its status says that it waits for what its namespace as a whole was refused, or it itself was."""
    pending = job.status.pending
    return pending is not None and pending.reason in _OF_NAMESPACE


def behind_words(namespace: str, reason: PendingReason) -> str:
    """What to tell of a job that is not tried since another one of its namespace was refused just now. The same for all
    of them, and at any time, so that nothing is written anew."""
    if reason is PendingReason.NAMESPACE_NOT_SERVED:
        return f"not tried yet: the operator lacks a right in namespace {namespace}, as another job there was told"
    return (
        f"not tried yet: another job asks for more than is left of the quotas of namespace {namespace}, and the others "
        "there are tried in their turn, one every few seconds"
    )
