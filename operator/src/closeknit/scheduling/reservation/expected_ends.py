"""When running jobs are expected to end: by what they declare, by their deadline, or because they are over.

What a declaration is off by is part of the run, and not of the wait for its end: an hour before its declared end a job
of four days may run for another day. So an end is expected no sooner than halfway to when the job will have run three
quarters longer than it declared: a job that waits for it waits no longer than twice what it was told, if it ends until
then. A job that runs longer still is expected to end a little later: by as long as it declared, one minute at least,
and then by twice as much each time that it is still there. So a small mistake costs little, a declaration that is wrong
by a factor of 100 is corrected ten times, and no end is ever in the past. (D. Tsafrir, Y. Etsion, D. Feitelson,
"Backfilling using system-generated predictions rather than user runtime estimates", IEEE TPDS 18, 2007, extend
predictions in growing steps, too.)
"""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import ConditionType
from closeknit.api.text.quantity import duration_s
from closeknit.api.trainingjob import TrainingJobSpec
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.store.difference import difference
from closeknit.lifecycle.status.conditions import found, moment
from closeknit.lifecycle.status.pauses import LINGERS_AFTER
from closeknit.lifecycle.status.stored_job import is_finished

SHORTEST = timedelta(minutes=1)
"""Of what a declaration counts for: no step is shorter, so that decisions and statuses follow at a bounded rate."""
_STEPS = 8  # of what was declared, so that who is late by 20 % is corrected twice at most
# One that declares a fifth too little takes a quarter longer, and a gang whose nodes are far apart up to 1.6 times as
# long. Of none, two, three, four and six, by tests/bench/queue_constants.py: docs/queueing.md has the figures.
_STEPS_ALLOWED = 6
# The grace period of a Pod that names none (terminationGracePeriodSeconds of Kubernetes).
_GRACE = timedelta(seconds=30)
_LONGEST_S = 100 * 365 * 86_400  # a duration may be written with any number of hours, and the calendar ends


class ExpectedEnd(NamedTuple):
    """When a job is expected to leave its GPUs. Sorts by that."""

    at: datetime
    """With time for what its declaration may be off by; never in the past."""
    job: JobKey
    soonest: datetime
    """As it declares; where it is late already, a little later than now. Not after `at`."""
    is_late: bool = False
    """Whether it runs longer than it declared."""


def run_time(spec: TrainingJobSpec, gpus: int | None = None) -> timedelta | None:
    """How long a job that starts now runs at most by its own word, or by its deadline; None where it says neither.
    `gpus`: how many it gets, where these are fewer than it asks for."""
    declared, deadline_s = spec.expected_duration, spec.active_deadline_seconds
    said = [_with(max(_length(declared), SHORTEST), spec, gpus)] if declared is not None else []
    said += [timedelta(seconds=deadline_s)] if deadline_s is not None else []
    return min(said, default=None)


class EndTerms(NamedTuple):
    """What a job's own object says of its end, whenever it is read."""

    job: TrainingJob
    declared: datetime | None = None
    """Its end as declared."""
    eighth: timedelta = SHORTEST
    """Of what it declares: how much later it is expected to end, at first."""
    due: datetime | None = None
    """When its deadline ends it."""
    is_leaving: bool = False
    """Whether it is over, suspended or being deleted: its Pods are on their way."""
    is_from_now: bool = False
    """Whether it holds GPUs and has not begun yet, so that all this counts from the moment of the decision."""

    def end(self, now: datetime) -> ExpectedEnd | None:
        """When a job that holds GPUs is expected to end; None where nothing says so."""
        return self.dated_end(now).end

    def dated_end(self, now: datetime) -> "DatedEnd":
        """The same, and until when that holds if the job does not change."""
        due = self.due
        if due is not None and due <= now:  # its GPUs are free once its end is stored, and not for anybody before
            at = _extended(due, SHORTEST, now)
            return DatedEnd(self, ExpectedEnd(at, self.job.key, at), at)
        if self.declared is None:
            return DatedEnd(self, None if due is None else ExpectedEnd(due, self.job.key, due), due)
        is_late = self.declared <= now
        soonest = _extended(self.declared, max(self.eighth, SHORTEST), now) if is_late else self.declared
        if due is not None and due < soonest:
            return DatedEnd(self, ExpectedEnd(due, self.job.key, due), due)
        allowed = _with_time(self.declared, self.eighth, now)
        at = max(soonest, allowed or soonest)
        latest = _latest(self.declared, self.eighth)
        # `_with_time` gives a moment up to the one at which it is halfway to the last, that one included.
        halfway = soonest if allowed is None else min(allowed - (latest - allowed) + datetime.resolution, allowed)
        until = min(soonest, halfway, *filter(None, [due]))
        return DatedEnd(self, ExpectedEnd(at if due is None else min(at, due), self.job.key, soonest, is_late), until)

    @property
    def allowed_until(self) -> datetime | None:
        """Until when its declaration is off by no more than is allowed for; None where it declares nothing."""
        return None if self.declared is None else _latest(self.declared, self.eighth)

    def is_forced(self, end: ExpectedEnd) -> bool:
        """Whether that end of the job rests on no declaration."""
        return self.is_leaving or (self.due is not None and self.due <= end.at)


class DatedEnd(NamedTuple):
    """When a job is expected to end, by these terms."""

    terms: EndTerms
    end: ExpectedEnd | None
    until: datetime | None
    """Until when it is that, this moment excluded; None: for ever."""


def end_terms(job: TrainingJob, now: datetime) -> EndTerms:
    """The terms of a job; of one that gets its GPUs in this decision from now on.

    What it trained before a restart counts: it goes on from its last checkpoint. A deadline ends it by force, so that
    nobody is late by it.
    """
    spec, status = job.spec, job.status
    if _is_leaving(job):
        return EndTerms(job, is_leaving=True)
    if status.placement is None or (spec.expected_duration is None and spec.active_deadline_seconds is None):
        return EndTerms(job)
    declared, eighth, due = None, SHORTEST, None
    if spec.expected_duration is not None:
        length = max(_length(spec.expected_duration), SHORTEST)
        trained_s = status.cost.trained_seconds if status.cost is not None else 0  # any number, in a written status
        trained = timedelta(seconds=max(0, min(trained_s, _LONGEST_S)))
        left = _with(max(length - trained, timedelta()), spec, status.placement.gpus)
        declared, eighth = begun(job, now) + left, length / _STEPS
    if spec.active_deadline_seconds is not None:
        since = moment(status.start_time) if status.start_time is not None else _whole(now)
        due = since + timedelta(seconds=spec.active_deadline_seconds)
    return EndTerms(job, declared, eighth, due, is_from_now=status.placement is not None and status.start_time is None)


def begun(job: TrainingJob, now: datetime) -> datetime:
    """Since when a job that holds GPUs has them, or since its last end where it started again on them; now for one that
    gets them in this decision."""
    status = job.status
    placed = found(status.conditions, ConditionType.PLACED)
    booked = status.start_time if placed is None or placed.status != "True" else placed.last_transition_time
    since = [moment(booked)] if booked is not None else []
    since += [moment(each.ended) for each in status.attempts[-1:]]
    return min(max(since, default=_whole(now)), _whole(now))


class JobTerms(NamedTuple):
    """The terms of all jobs of one cluster."""

    jobs: Mapping[JobKey, TrainingJob] = {}
    """These jobs."""
    by_job: Mapping[JobKey, EndTerms] = {}
    ending: Mapping[JobKey, EndTerms] = {}
    """Of those that may say something of their ends; the very same object while none of them changes."""
    undated: Collection[JobKey] = ()
    """Those that count from the moment of the decision."""
    leaving: Collection[JobKey] = ()
    """Those that are over, suspended or being deleted."""
    since: Mapping[JobKey, EndTerms] = {}
    """The `ending` before this one."""
    moved: Collection[JobKey] = ()
    """Those with other terms than in `since`."""


def terms_of(cluster: Cluster, now: datetime, known: JobTerms) -> JobTerms:
    """The terms of all jobs; `known` has those of the decision before."""
    if known.jobs is cluster.jobs and not known.undated:
        return known
    changed = difference(known.jobs, cluster.jobs)
    by_job = dict(known.by_job)
    for key in changed.gone:
        del by_job[key]
    moved = [key for key in changed.gone if key in known.ending]
    new: dict[JobKey, EndTerms] = {}
    for key in {*changed.stored, *known.undated}.difference(changed.gone):
        by_job[key] = said = end_terms(cluster.jobs[key], now)
        if said.is_leaving or said.declared or said.due:
            new[key] = said
        elif key in known.ending:
            moved.append(key)
    if not moved and not new:
        return known._replace(jobs=cluster.jobs, by_job=by_job)
    ending = dict(known.ending)
    for key in moved:
        del ending[key]
    ending |= new
    undated = [key for key, said in ending.items() if said.is_from_now]
    leaving = [key for key, said in ending.items() if said.is_leaving]
    return JobTerms(cluster.jobs, by_job, ending, undated, leaving, known.ending, (*moved, *new))


class KnownEnds(NamedTuple):
    """The ends of one decision, for the next one."""

    ends: tuple[ExpectedEnd, ...] = ()
    """Of all jobs that hold GPUs and say how long, and of those whose Pods are going; soonest first."""
    by_job: Mapping[JobKey, DatedEnd] = {}
    """Of those that hold GPUs."""
    going: tuple[ExpectedEnd, ...] = ()
    """Of those whose Pods are going."""
    ending: Mapping[JobKey, EndTerms] = {}
    """By these terms."""
    now: datetime | None = None
    """The moment of that decision."""
    until: datetime | None = None
    """Until when all of them hold, this moment excluded; None: for ever."""


def expected_ends(cluster: Cluster, now: datetime, terms: JobTerms, known: KnownEnds) -> KnownEnds:
    """The ends in this cluster; `known` are those of the decision before. An end that holds on is not worked out again:
    a thousand jobs may declare, and every event asks for all of their ends."""
    if known.now is None or now < known.now:
        known = KnownEnds()
    again: set[JobKey] = set()
    if terms.ending is not known.ending:
        again.update(terms.moved if terms.since is known.ending else (*known.by_job, *terms.ending))
    if known.until is not None and known.until <= now:
        again.update(key for key, dated in known.by_job.items() if dated.until is not None and dated.until <= now)
    going = tuple(end for key in terms.leaving if (end := _going(key, cluster, now)) is not None)
    if not again and going == known.going:
        return known._replace(ending=terms.ending, now=now)
    by_job = dict(known.by_job)
    new = list(going)
    for key in again:
        by_job.pop(key, None)
        said = terms.ending.get(key)
        if said is not None and not said.is_leaving and cluster.booking_of(key) is not None:
            by_job[key] = dated = said.dated_end(now)
            new += [] if dated.end is None else [dated.end]
    past = again.union(end.job for end in known.going)
    # Nearly in order, so that to sort them costs little.
    ends = sorted([*(end for end in known.ends if end.job not in past), *new])
    until = min((dated.until for dated in by_job.values() if dated.until is not None), default=None)
    return KnownEnds(tuple(ends), by_job, going, terms.ending, now, until)


def silent_jobs(cluster: Cluster, now: datetime, known: tuple[ExpectedEnd, ...]) -> tuple[JobKey, ...]:
    """Jobs that hold GPUs and do not say how long, those that began first at the front."""
    ending = {end.job for end in known}
    silent = [
        (begun(job, now), key)
        for key, job in cluster.jobs.items()
        if key not in ending and cluster.booking_of(key) is not None
    ]
    return tuple(key for _, key in sorted(silent))


def began_alike(before: Cluster, cluster: Cluster, now: datetime) -> bool:
    """Whether the same jobs hold something as in an earlier version, and began in the same order: one that has started
    again on its GPUs comes last."""
    changed = difference(before.jobs, cluster.jobs)
    return all(
        _held_since(before.jobs.get(key), now) == _held_since(cluster.jobs.get(key), now)
        for key in (*changed.stored, *changed.gone)
    )


def _held_since(job: TrainingJob | None, now: datetime) -> datetime | None:
    return None if job is None or job.status.placement is None else begun(job, now)


def _going(key: JobKey, cluster: Cluster, now: datetime) -> ExpectedEnd | None:
    """When the Pods of a job that is over, suspended or being deleted are gone, where they still hold something. One
    whose Pods stay longer than they may is stuck, and nothing tells when it leaves; one that waits again may get its
    own GPUs back."""
    live = [pod for pod in cluster.pods_of(key) if pod.is_live]
    if not live:
        return None
    job = cluster.jobs[key]
    told = (job.metadata.deletion_timestamp, *(pod.deletion_timestamp for pod in live))
    going = [moment(each) for each in told if each is not None]
    going += [moment(each.ended) + _GRACE for each in job.status.attempts[-1:]]
    at = max(going, default=now) + LINGERS_AFTER
    return ExpectedEnd(at, key, at) if going and at > now else None


def _is_leaving(job: TrainingJob) -> bool:
    return is_finished(job) or job.spec.suspend or job.metadata.deletion_timestamp is not None


def _with_time(declared: datetime, step: timedelta, now: datetime) -> datetime | None:
    """The first of the moments none to six steps behind `declared` that is no sooner than halfway to the last of them;
    None where that has passed. An end that moved at every moment would move what is told, too."""
    latest = _latest(declared, step)
    moments = (declared + steps * step for steps in range(_STEPS_ALLOWED + 1))
    return next((at for at in moments if at > now and 2 * (at - now) >= latest - now), None)


def _latest(declared: datetime, step: timedelta) -> datetime:
    """Until when a job may run with a declaration that is off by as much as is allowed for."""
    return declared + _STEPS_ALLOWED * step


def _extended(at: datetime, step: timedelta, now: datetime) -> datetime:
    """The first moment after now of those that lie one step, two, four and so on behind `at`."""
    while at + step <= now:
        step *= 2
    return at + step


def _with(length: timedelta, spec: TrainingJobSpec, gpus: int | None) -> timedelta:
    """What is declared for all GPUs takes longer in proportion with fewer of them; no job is faster than it says."""
    if gpus is None or not 0 < gpus < spec.gpus:
        return length
    return timedelta(seconds=min(length.total_seconds() * spec.gpus / gpus, _LONGEST_S))


def _length(declared: str) -> timedelta:
    return timedelta(seconds=min(duration_s(declared), _LONGEST_S))


def _whole(now: datetime) -> datetime:
    return now.astimezone(UTC).replace(microsecond=0)
