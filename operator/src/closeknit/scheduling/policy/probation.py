"""Trials of refused jobs, limited for each namespace, so that they block GPUs for no other job.

A job that a quota or a policy refused is tried again, and its GPUs count as taken until the API server answers: some
tenths of a second. Hundreds of such jobs, each after a pause of its own or new, as all are to an operator that has just
started, would take turns on an idle cluster. So when the API server has refused a job of a namespace, no job of that
namespace is tried for a while, and then those whose own pause is over. If the cause may well refuse the others, their
status says so at once. Many namespaces would take turns like that, too: after each refusal all jobs refused before wait
for a moment, in every namespace.
"""

from datetime import datetime, timedelta

from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import ConditionType, PendingReason
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.status.conditions import is_true
from closeknit.lifecycle.status.pauses import is_between
from closeknit.lifecycle.status.pending import traits
from closeknit.lifecycle.verdict import Refusal, Wait, WaitCause
from closeknit.lifecycle.writes.answers import NOTHING, Answers
from closeknit.lifecycle.writes.refusals import Rejection
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.queue.entries import Outcome

# Many times as long as a trial takes (0.2 s measured, of three decisions): what is free is free for others meanwhile.
BETWEEN = timedelta(seconds=2)
# Time for one decision at least, in which nothing is on trial: four are made a second where all is busy.
REST = timedelta(seconds=1)
# For so long after a refusal all of its namespace are likely to be refused. That they wait behind another stands in
# their statuses, but those of hundreds are written one after the other: 300 took 20 s on a busy control plane, and
# meanwhile jobs that were not told yet took turns on all GPUs.
TOLD_WITHIN = timedelta(seconds=30)


class Probation:
    """The newest refusal of the API server, for each namespace and in all, found on first use."""

    def __init__(self, cluster: Cluster, memory: Memory, now: datetime) -> None:
        self._cluster = cluster
        self._answers = memory.answers
        self._busy, self._put_aside = memory.busy, memory.put_aside
        self._now = now
        self._newest: dict[str, Rejection] | None = None
        self._rest_until: datetime | None = None

    def may_be_refused(self, job: TrainingJob, answers: Answers) -> bool:
        """Whether the API server is likely to refuse the job: as it did before, or others of its namespace."""
        return answers.rejection is not None or self._is_behind_others(job)

    def may_keep_room(self, job: TrainingJob, answers: Answers, *, is_trial: bool) -> bool:
        """Whether room may be kept for a job: not for a while after it was refused as it is now, and for none whose
        namespace is. Who has a reservation keeps it while only others of its namespace are refused: they are tried
        again and again, and its own message would come and go with that. For the same reason one that waits for
        something else than room takes none while others are tried (`is_trial`), or right after: it is not asked."""
        pending, refused = job.status.pending, answers.rejection
        waits_for_other = pending is not None and not traits(pending.reason).is_for_room
        if waits_for_other and (is_trial or self.refusal(job, answers, is_trial=True) is not None):
            return False
        if refused is not None and refused.generation == job.metadata.generation:
            return self._now >= refused.keeps_room_from and not _is_behind(job)
        if refused is None and pending is not None and pending.reserved_since is not None:
            return True
        return not self._is_behind_others(job)

    def _is_behind_others(self, job: TrainingJob) -> bool:
        if _is_behind(job):
            return True
        here = self._newest_by_namespace().get(job.key.namespace)
        return (
            here is not None
            and traits(here.reason).is_of_namespace
            and is_between(here.at, self._now, here.at + TOLD_WITHIN)
        )

    def refusal(self, job: TrainingJob, answers: Answers, *, is_trial: bool) -> Refusal | None:
        """Why a job is not given GPUs now; None where it may be. `is_trial`: it is likely to be refused again."""
        newest = self._newest_by_namespace()
        here = newest.get(job.key.namespace)
        ends = [here.at + BETWEEN] if here is not None and is_between(here.at, self._now, here.at + BETWEEN) else []
        if is_trial and self._rest_until is not None:
            ends.append(self._rest_until)
        if not ends:
            return None
        until = max(ends)
        own = answers.rejection
        if own is not None and own.generation != job.metadata.generation:
            return Refusal(WaitCause.NOT_ASKED, until=until)  # nothing is known of the spec as it is now
        if _stays_told(job, None if own is None else own.reason):
            return Refusal(WaitCause.NOT_ASKED, until=until)
        if own is not None:
            return Refusal(WaitCause.REFUSED, own.reason, own.message, until=until)
        if here is not None and traits(here.reason).is_of_namespace:
            return Refusal(WaitCause.REFUSED, here.reason, behind_words(job.key.namespace, here.reason), until=until)
        return Refusal(WaitCause.NOT_ASKED, until=until)

    def are_under_way(self) -> bool:
        """Whether GPUs count as taken only until the API server has answered: likely with a refusal, as it gave to the
        job before, or lately to others of the namespace. A job that runs has its GPUs, whatever is written of it."""
        return any(
            self._cluster.booking_of(key) is not None
            and (job := self._cluster.jobs.get(key)) is not None
            and not is_true(job.status.conditions, ConditionType.RUNNING)
            and self.may_be_refused(job, self._answers.get(job.metadata.uid or "", NOTHING))
            for key in self._busy - self._put_aside
        )

    def _newest_by_namespace(self) -> dict[str, Rejection]:
        if self._newest is None:
            self._newest = {}
            # Of a thousand jobs hardly one was refused by the API server.
            refused = {uid: told for uid, each in self._answers.items() if (told := each.rejection) is not None}
            for key, each in self._cluster.jobs.items() if refused else ():
                told = refused.get(each.metadata.uid or "")
                before = self._newest.get(key.namespace)
                if told is not None and (before is None or (told.at, told.reason) > (before.at, before.reason)):
                    self._newest[key.namespace] = told
            rests = [each.at + REST for each in self._newest.values() if is_between(each.at, self._now, each.at + REST)]
            self._rest_until = max(rests, default=None)
        return self._newest


def put_off(outcome: Outcome, job: TrainingJob, barred: Refusal) -> None:
    """Has the outcome of a job that does not fit stand only until it may be tried in another way. What it was told
    that is not for want of room stays told: it may well be so again in a moment."""
    outcome.is_settled = False
    outcome.until = min(filter(None, (outcome.until, barred.until)), default=None)
    pending = job.status.pending
    if pending is not None and not traits(pending.reason).is_for_room:
        outcome.verdict = Wait(Refusal(WaitCause.NOT_ASKED, until=barred.until))


def _is_behind(job: TrainingJob) -> bool:
    """Whether its status says that its namespace as a whole was refused, or it itself was."""
    pending = job.status.pending
    return pending is not None and traits(pending.reason).is_of_namespace


def _stays_told(job: TrainingJob, refused: PendingReason | None) -> bool:
    """Whether its status says something that no try of another job changes, and another thing than for what it was
    `refused` itself. That, or the namespace's message, in between would be two writes with each try."""
    pending = job.status.pending
    return pending is not None and pending.reason != refused and traits(pending.reason).stays_told


def behind_words(namespace: str, reason: PendingReason) -> str:
    """The message of a job that is not tried because another one of its namespace was just refused. It is the same for
    all of them at any time, so that it is written once."""
    if reason is PendingReason.NAMESPACE_NOT_SERVED:
        return f"not tried yet: nothing can be made in namespace {namespace}, as another job there was told"
    return (
        f"not tried yet: another job asks for more than is left of the quotas of namespace {namespace}, and the others "
        "there are tried in their turn, one every few seconds"
    )
