"""Preemption: a job that does not fit takes the room of jobs of lower priority.

Three verdicts, one after the other. `preempt` finds who has to go for a job that has no room and would be refused for
nothing else: it holds their GPUs from then on, and that is stored. `evicted` then ends them. `awaiting` gives the job
its Pods once theirs are gone, and finds it another place where its own is no more.

An elastic job that has waited for all of its GPUs takes room for fewer, where nobody could make room for all, and none
that it could start with is free.

Nobody goes for a better fit than the job asks: it fits at its required level, and its patience does not count. Nor
where it fits without, now or once what goes anyway is gone: Pods of ended attempts, and jobs that make room already. A
job that others make room for, and one that makes room, makes none for a third.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.attempt.avoided_nodes import AvoidedNodes, avoided_nodes, tried_in_vain
from closeknit.lifecycle.booking.booked_placement import assumed
from closeknit.lifecycle.status.pauses import failed_starts
from closeknit.lifecycle.verdict import Await, Wait, WaitCause
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import Request
from closeknit.scheduling.elastic.fewer_from import all_come_soon, fewer_from
from closeknit.scheduling.elastic.sizes import EACH_ASKED, fewer, largest
from closeknit.scheduling.policy.admit import admit, cannot_be_made
from closeknit.scheduling.policy.policy_context import Walk
from closeknit.scheduling.policy.probation import put_off
from closeknit.scheduling.preemption.lending import on_lent_spares
from closeknit.scheduling.preemption.select_victims import select_victims
from closeknit.scheduling.preemption.surplus import sparing
from closeknit.scheduling.preemption.trial_placement import alone, placed
from closeknit.scheduling.preemption.words import room_words
from closeknit.scheduling.queue.entries import UNSEARCHED, Case, Outcome
from closeknit.scheduling.queue.room import Room
from closeknit.scheduling.victims.cheapest_victims import EXACT
from closeknit.scheduling.victims.victim import Victim, gone, victims
from closeknit.scheduling.victims.victim_search import ChosenVictims, sizes_without

# A checkpoint of the largest gangs is written in minutes. A grace period may be any number of seconds, and the declared
# end of a job that names a year would else keep it from making room until then.
MOST_GRACE = timedelta(minutes=10)

# A webhook may let a Pod pass on trial and refuse it then, and a quota may be used up meanwhile. Each such try costs
# others their run since the last checkpoint.
_IN_VAIN_FOR = timedelta(hours=1)
# Of the sizes for which GPUs enough could come free, the largest ones; and the least one after them. Among more than
# a dozen jobs each costs a search that takes 0.15 s on 5,000 nodes where it is in vain.
SIZES_TRIED = 2


def preempt(case: Case, room: Room, walk: Walk) -> Outcome:
    """The GPUs that the job gets now, or those that jobs of lower priority leave to it, or why it gets none."""
    outcome = on_lent_spares(case, room, walk, admit(case, room, walk))  # for that nobody ends
    asked = _asked(case, outcome, room, walk)
    if asked is None or outcome.shape is None:
        return outcome
    known, cluster = walk.preemptions, room.cluster
    if not known.take(case.place):
        outcome.holders = UNSEARCHED
        return outcome
    away = avoided_nodes(case.job, cluster, walk.now)
    soon = known.settled(cluster)
    if walk.questions.can_place(asked, soon.without(away.devices)):
        outcome.is_settled = False
        return outcome
    priority = cluster.priority(case.job)
    there = victims(cluster, priority, walk.now)
    search = _VictimSearch(case, away, soon, there, walk)
    found = search.for_all(asked)
    if found.made is None and (sizes := _smaller(case, asked, walk)):
        if not walk.questions.take_more(case.place):
            outcome.is_settled = False
            return outcome
        found = search.for_fewer(asked, sizes, found)
    if found.is_vain:
        if not (_has_left(case, cluster) or away.devices):  # others may take what it avoids
            known.in_vain(asked, _least(case, asked, walk), priority, cluster)
        outcome.holders = known.holders_of(cluster)
        return outcome
    asked, made = found.asked, found.made
    if made is None or _starts_sooner(case, asked, made.victims, room, walk):
        outcome.is_settled = False
        return outcome
    walk.reserving.withdraw(case.key)
    if (cannot := cannot_be_made(case, made.placement, outcome.shape, outcome.until, room)) is not None:
        return cannot
    made = _sparing(case, asked, made, soon.without(away.devices), walk)
    awaited = tuple(victim.awaited for victim in made.victims)
    walk.reserving.note(case.job, made.placement)
    held = cluster.with_job(assumed(case.job, made.placement, awaited))
    after = room.less(held, is_trial=walk.probation.may_be_refused(case.job, case.answers))
    return Outcome(
        Await(awaited, room_words(awaited, case.key.namespace), made.placement), is_settled=False, room=after
    )


def _most(case: Case, walk: Walk) -> int:
    """How many GPUs it asks for: all, or the most that a quota is known to leave, where it would start with that."""
    room = case.answers.quota_room(case.job)
    sizes = range(0) if room is None else reversed(_startable(case, walk))
    return next((size for size in sizes if room is None or room.holds_likely(size)), case.job.spec.gpus)


def _smaller(case: Case, asked: Request, walk: Walk) -> range:
    """The sizes below that one with which it would start now, ascending."""
    sizes = _startable(case, walk)
    return range(sizes.start, min(sizes.stop, asked.gpus), sizes.step)


def _startable(case: Case, walk: Walk) -> range:
    """The sizes with which it would start now instead of all, ascending."""
    since = fewer_from(case.job, case.workload, walk.now)
    if since is None or walk.now < since or all_come_soon(case.job, walk.reserving.current, walk.now):
        return range(0)
    return fewer(case.job.spec, case.job.spec.gpus)


def _least(case: Case, asked: Request, walk: Walk) -> int:
    """With how many GPUs it would start now."""
    return next(iter(_smaller(case, asked, walk)), asked.gpus)


@dataclass(frozen=True, slots=True)
class _Found:
    """What a search for victims came to."""

    asked: Request
    made: ChosenVictims | None
    """Who goes; None where nobody does."""
    is_vain: bool
    """Whether nobody's going would help, whatever is kept for a job before it."""


@dataclass(frozen=True, slots=True)
class _VictimSearch:
    """Who may go for a job, and from where."""

    case: Case
    away: AvoidedNodes
    soon: Cluster
    """The cluster once all are gone that go anyway."""
    there: Sequence[Victim]
    walk: Walk

    def for_all(self, asked: Request) -> _Found:
        """Who goes so that it fits, and takes nothing of what is kept for a job before it."""
        case, soon, walk = self.case, self.soon, self.walk
        made = select_victims(case, asked, self.away, soon, self.there, walk)
        if made is None or not _delays_the_first(case, made, soon, walk):
            return _Found(asked, made, is_vain=made is None)
        apart = replace(self.away, devices=walk.reserving.with_kept(self.away.devices))  # others may do that
        made = select_victims(case, asked, apart, soon, self.there, walk)
        return _Found(asked, None if made is None or _delays_the_first(case, made, soon, walk) else made, is_vain=False)

    def for_fewer(self, asked: Request, sizes: range, for_all: _Found) -> _Found:
        """The same with one of these sizes, the largest that is found; nobody goes where one fits without that."""
        free = self.soon.without(self.away.devices)

        def place(gpus: int) -> Placement | None:
            return placed(self.case, replace(asked, gpus=gpus), free, self.walk)

        if not self.there or largest(sizes, asked, place, free):
            return for_all
        enough, is_vain = sizes_without(free, asked, self.there, sizes), for_all.is_vain
        tried = SIZES_TRIED if len(self.there) > EXACT else EACH_ASKED
        for gpus in dict.fromkeys([*enough[:tried], *enough[-1:]]):
            found = self.for_all(replace(asked, gpus=gpus))
            if found.made is not None:
                return found
            is_vain = is_vain and found.is_vain
        return _Found(asked, None, is_vain)


def _sparing(case: Case, asked: Request, made: ChosenVictims, soon: Cluster, walk: Walk) -> ChosenVictims:
    """The same room, placed so that elastic jobs can go on with what is left of theirs, where that delays nobody."""
    changes = (each for victim in made.victims for each in gone(soon, victim.job))
    spared = sparing(case, asked, made, soon.after(tuple(changes)), walk)
    return made if _delays_the_first(case, spared, soon, walk) else spared


def _asked(case: Case, outcome: Outcome, room: Room, walk: Walk) -> Request | None:
    """What it asks of others' room; None where it takes none: it is not refused for want of room, nobody is below it,
    or it is known that nobody could make room. `outcome` then says on what that rests."""
    shape, verdict, known = outcome.shape, outcome.verdict, walk.preemptions
    if shape is None or not isinstance(verdict, Wait) or verdict.refusal.cause is not WaitCause.NO_FIT:
        return None
    cluster, priority = room.cluster, room.cluster.priority(case.job)
    if known.lowest is None or known.lowest >= priority or not cluster.may_preempt(case.job):
        return None
    if (until := refused_until(case, walk.now)) is not None:
        outcome.until = min(until, outcome.until or until)
        return None
    is_trial = walk.probation.may_be_refused(case.job, case.answers)
    if (barred := walk.probation.refusal(case.job, case.answers, is_trial=is_trial)) is not None:
        put_off(outcome, case.job, barred)
        return None
    asked = replace(for_others_to_go(case, shape.request, cluster, walk), gpus=_most(case, walk))
    if (failed := failed_starts(case.job.status, walk.now)) is not None:
        outcome.until = min(failed.until, outcome.until or failed.until)
        outcome.is_settled = False  # the nodes where it could not start may change
    least = _least(case, asked, walk)
    is_vain = not _has_left(case, cluster) and known.is_vain(asked, least, priority, cluster)
    could = any(walk.questions.could_place(replace(asked, gpus=gpus), cluster) for gpus in {asked.gpus, least})
    if is_vain or not could:
        outcome.holders = known.holders_of(cluster)
        return None
    if asked != shape.request and placed(case, asked, alone(case, cluster, walk), walk) is not None:
        return None  # it waits for what it prefers
    return asked


def for_others_to_go(case: Case, asked: Request, cluster: Cluster, walk: Walk) -> Request:
    """What a job asks for where others are to go for it: without patience, not where it could not start lately, and
    with what admission added to its Pods then."""
    vain = tried_in_vain(case.job, cluster, walk.now)
    needs = walk.questions.needs_as_admitted(case)
    return replace(asked, patient_level=None, needs=needs, avoided=asked.avoided | vain)


def refused_until(case: Case, now: datetime) -> datetime | None:
    """Until when nobody goes for a job that was refused after others had made room for it, or whose last attempts could
    not start; None where somebody may."""
    failed = failed_starts(case.job.status, now)
    ends = [failed.bars_room_until] if failed is not None and failed.bars_room_until is not None else []
    rejection, made_at = case.answers.rejection, case.answers.room_made_at
    if rejection is not None and made_at is not None and rejection.generation == case.job.metadata.generation:
        ends.append(made_at + _IN_VAIN_FOR)
    return max((end for end in ends if now < end), default=None)


def _has_left(case: Case, cluster: Cluster) -> bool:
    """Whether it has Pods or claims of its own, so that it finds another room than others."""
    return bool(case.pods or cluster.claims_of(case.key))


def _starts_sooner(case: Case, asked: Request, victims: Sequence[Victim], room: Room, walk: Walk) -> bool:
    """Whether it is expected to fit without these before they have had their grace: into the room that is kept for it,
    or where nothing is kept for it into what others leave by then. One that runs longer than it declared is not waited
    for."""
    pods = (pod for victim in victims for pod in walk.cluster.pods_of(victim.key))
    until = walk.now + min(timedelta(seconds=max((pod.grace_s for pod in pods), default=0)), MOST_GRACE)
    kept = walk.reserving.current
    if kept is not None and kept.job == case.key:
        return kept.at is not None and not kept.late and kept.at <= until
    ending = walk.reserving.ending_by(until, room.cluster)
    if not ending:
        return False
    then = walk.preemptions.settled(room.cluster)
    for key in ending:
        then = then.after(tuple(gone(then, then.jobs[key])))
    return walk.questions.can_place(asked, then.without(avoided_nodes(case.job, room.cluster, walk.now).devices))


def _delays_the_first(case: Case, made: ChosenVictims, soon: Cluster, walk: Walk) -> bool:
    """Whether it would take room that is kept for a job before it."""
    if walk.reserving.makes_room_for(case.job, made.placement):
        return False
    return walk.reserving.passing(case.job, made.placement, soon, lambda _: None) is None
