"""Fractions of a GPU, which closeknit itself does not hand out: jobs that share a GPU, in the simulator alone.

A small job goes to the GPU with the least room that has enough, among those that small jobs of the same spec share
already and whose node has the CPU, memory and the rest that its Pod needs. Where none has, the first of them asks the
operator's queue for a GPU of its own, which is shared from then on until the last job on it has gone. The booking
counts for one of the jobs on it; each of the others takes of the node what its Pod needs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from closeknit.lifecycle.verdict import Refusal
from closeknit.simulation.operated import Operated
from closeknit.simulation.submission import Submission

_MISSED = 1e-9  # by sums of fractions


@dataclass(slots=True, eq=False)
class _SharedGpu:
    """A GPU and the jobs on it; `holder` is the one that asked for it, and may have gone."""

    holder: Submission
    room: float = 1.0
    tenants: set[Submission] = field(default_factory=set)
    lodged: list[Submission] = field(default_factory=list)
    """Who took something of the node beside the booking: one less than there are tenants, all of whom need the same."""


class Sharing:
    """The operator's queue, and before it the GPUs that small jobs share."""

    def __init__(self, operated: Operated) -> None:
        self.operated = operated
        self._gpus: list[_SharedGpu] = []
        self._of: dict[Submission, _SharedGpu] = {}
        self._small: dict[Submission, bool] = {}
        """Small jobs that wait, in the order they came; True of those that ask for a GPU of their own."""
        self._stopped: list[Submission] = []

    def refused(self) -> dict[Submission, Refusal]:
        """Why each job that waits does, by the last decision; a small one that has not asked for a GPU does so for the
        reason of the one of its spec that has."""
        found = dict(self.operated.waiting)
        asking = {id(job.spec): found[job] for job, asks in self._small.items() if asks and job in found}
        return {**{job: asking[id(job.spec)] for job in self._small if id(job.spec) in asking}, **found}

    def come(self, job: Submission, now_s: float) -> None:
        """A small job waits here, a whole one in the operator's queue."""
        if job.part < 1:
            self._small[job] = False
        else:
            self.operated.come(job, now_s)

    def go(self, job: Submission, now_s: float) -> None:
        """The GPU of a small job goes back with the last on it."""
        gpu = self._of.pop(job, None)
        if gpu is None:
            self.operated.go(job, now_s)
            return
        gpu.tenants.remove(job)
        gpu.room += job.part
        if gpu.lodged:
            self.operated.move_out(gpu.lodged.pop())
        if not gpu.tenants:
            self._gpus.remove(gpu)
            self.operated.go(gpu.holder, now_s)

    def begun(self, now_s: float) -> Sequence[Submission]:
        """Small jobs where there is room for them, and the operator's decision, until neither lets anybody begin."""
        began = self._moved_in(now_s)
        self._stopped = []
        while True:
            self._ask(now_s)
            booked = self.operated.begun(now_s)
            stopped = [job for each in self.operated.stopped() for job in self._stop(each, now_s)]
            self._stopped += [job for job in stopped if job not in began]
            began = [job for job in began if job not in stopped] + list(booked)
            has_more_room = False
            for job in booked:
                if job.part < 1:
                    gpu = _SharedGpu(job)
                    self._gpus.append(gpu)
                    self._join(gpu, job)
                    has_more_room = True
            if not has_more_room:
                return began
            began += self._moved_in(now_s)

    def stopped(self) -> Sequence[Submission]:
        """As the operator's queue; those that share a GPU stop with it."""
        return self._stopped

    def resized(self) -> Sequence[tuple[Submission, float]]:
        """As the operator's queue; those that share a GPU have one, which stays."""
        return self.operated.resized()

    def wake_s(self, now_s: float) -> float | None:
        """As the operator's queue."""
        return self.operated.wake_s(now_s)

    def _stop(self, holder: Submission, now_s: float) -> Sequence[Submission]:
        gpu = next((each for each in self._gpus if each.holder is holder), None)
        if gpu is None:
            return [holder]
        self._gpus.remove(gpu)
        for job in gpu.lodged:
            self.operated.move_out(job)
        for job in gpu.tenants:
            del self._of[job]
            self._small[job] = job is holder
        if holder not in gpu.tenants:
            self.operated.go(holder, now_s)
        return sorted(gpu.tenants, key=lambda job: job.number)

    def _ask(self, now_s: float) -> None:
        """The first that waits of each spec asks for a GPU."""
        specs: list[object] = []
        for job in self._small:
            if not any(spec is job.spec for spec in specs):
                specs.append(job.spec)
                if not self._small[job]:
                    self._small[job] = True
                    self.operated.come(job, now_s)

    def _moved_in(self, now_s: float) -> list[Submission]:
        found = []
        for job, asks in list(self._small.items()):
            able = [
                gpu
                for gpu in self._gpus
                if gpu.holder.spec is job.spec
                and gpu.room >= job.part - _MISSED
                and self.operated.has_room_beside(gpu.holder, job)
            ]
            if not able:
                continue
            gpu = min(able, key=lambda gpu: gpu.room)
            self._join(gpu, job)
            self.operated.lodge(job, gpu.holder)
            gpu.lodged.append(job)
            if asks:
                self.operated.go(job, now_s)
            found.append(job)
        return found

    def _join(self, gpu: _SharedGpu, job: Submission) -> None:
        del self._small[job]
        gpu.tenants.add(job)
        gpu.room -= job.part
        self._of[job] = gpu
