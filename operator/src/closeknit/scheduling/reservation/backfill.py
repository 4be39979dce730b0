"""Who passes a reservation: backfill.

A job behind the reserved one starts if it ends before, by its own declaration; if its nodes are others; if it fits on
other GPUs; or if the first job still fits at that moment beside it. While a job that is waited for runs longer than it
declared, nobody passes by a declaration, so that no number of lies delays the first job for ever.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Self

from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob import TrainingJobSpec
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.booking.booked_placement import assumed
from closeknit.lifecycle.verdict import Reservation
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place, place
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import Request
from closeknit.scheduling.reservation.expected_ends import run_time


@dataclass(frozen=True, slots=True)
class ReservedRoom:
    """A reservation, and the cluster at its moment."""

    reservation: Reservation
    asked: Request
    """What its job asks for."""
    future: Cluster
    """Without the jobs that will have ended, and with those that have passed and run longer."""

    def certainly_lets(self, job: TrainingJob, answer: Placement, now: datetime) -> bool:
        """Whether a job may take this without another question: it ends before, or lies on other nodes."""
        kept = self.reservation
        return kept.job == job.key or self.ends_before(job.spec, answer, now) or are_apart(answer, kept.placement)

    def beside(self, job: TrainingJob, answer: Placement, tables: Tables) -> Reservation | None:
        """The reservation with a job there that runs longer: the same, or elsewhere at the same moment; None where the
        first job would be late."""
        if are_apart(answer, self.reservation.placement):
            return self.reservation
        asked = replace(self.asked, patient_level=self.reservation.patient_level)
        if self._leaves_too_few(answer):
            return None
        future = self.future.with_job(assumed(job, answer))
        found = place(future, asked, tables) if can_place(future, asked, tables) else None
        if not isinstance(found, Placement):
            return None
        return self.reservation if found == self.reservation.placement else replace(self.reservation, placement=found)

    def _leaves_too_few(self, answer: Placement) -> bool:
        """Whether fewer GPUs than the first job asks for are free in all beside this, so that nobody need ask whether
        they fit."""
        if not self.asked.takes_free_gpus:
            return False
        nodes = self.future.nodes
        taken = sum(len({*nodes[share.node].free} & {*share.gpus}) for share in answer.shares if share.node in nodes)
        return self.future.forest.free_gpus - taken < self.asked.gpus

    def moved(self, reservation: Reservation) -> Self:
        """The room of the same job elsewhere."""
        return self if reservation is self.reservation else replace(self, reservation=reservation)

    def after(self, job: TrainingJob, answer: Placement, now: datetime) -> Self:
        """The room once a job got this."""
        if self.ends_before(job.spec, answer, now):
            return self
        return replace(self, future=self.future.with_job(assumed(job, answer)))

    def without_spares_there(self, job: TrainingJob, answer: Placement, now: datetime) -> Placement:
        """The placement without the spares that the reservation needs."""
        if not answer.spares or self.ends_before(job.spec, answer, now):
            return answer
        nodes = {share.node for share in self.reservation.placement.shares}
        return replace(answer, spares=tuple(share for share in answer.spares if share.node not in nodes))

    @property
    def devices(self) -> dict[str, frozenset[str]]:
        """UUIDs of its GPUs, or of its MIG device, by node."""
        return {
            share.node: frozenset([share.mig_device] if share.mig_device else filter(None, share.uuids))
            for share in self.reservation.placement.shares
        }

    def ends_before(self, spec: TrainingJobSpec, answer: Placement | None, now: datetime) -> bool:
        """Whether a job with these GPUs, which may be fewer than it asks for, ends before the room is needed; None for
        all of them."""
        gpus = None if spec.elastic is None or answer is None else sum(len(share.gpus) for share in answer.shares)
        kept, lasts = self.reservation, run_time(spec, gpus)
        return kept.soonest is not None and not kept.late and lasts is not None and now + lasts <= kept.soonest


def are_apart(one: Placement, other: Placement) -> bool:
    """Whether they have no node in common."""
    nodes = {share.node for share in other.shares}
    return not any(node in nodes for node in _nodes(one))


def _nodes(placement: Placement) -> Iterator[str]:
    return (share.node for share in (*placement.shares, *placement.spares))
