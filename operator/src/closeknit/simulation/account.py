"""What a replay comes to: waits, locality, allocation and fragmentation, gathered moment by moment."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from closeknit.api.reasons import EndReason
from closeknit.lifecycle.verdict import Refusal
from closeknit.placement.fragmentation import Fragmentation, fragmentation
from closeknit.simulation.fractional import Sharing
from closeknit.simulation.replay import ReplayMoment
from closeknit.simulation.submission import Submission

AT_IDEAL = 0.999  # bandwidths are sums of floats
SAMPLES = 240  # of fragmentation over the time that jobs come: a plot has few more pixels

SHORT_S = 60.0  # a start is foretold to the minute


class Sample(NamedTuple):
    """The cluster at one moment."""

    at_s: float
    allocated_gpus: float
    """By jobs of the trace."""
    waiting_jobs: int
    free: Fragmentation


class Waits(NamedTuple):
    """How long jobs waited before they began, in seconds."""

    mean_s: float
    p50_s: float
    p95_s: float
    longest_s: float


class Foretold(NamedTuple):
    """How true it was what jobs were told first about when they would start."""

    jobs: int
    median_error: float
    """As part of the wait."""
    latest: float
    """The longest wait as part of what was said, from the job's coming on."""


class PreemptionCost(NamedTuple):
    """What jobs lost that ended for others, and began again."""

    times: int
    gpu_seconds: float


NOTHING_LOST = PreemptionCost(0, 0.0)


class Resizes(NamedTuple):
    """How often jobs began with fewer GPUs than they ask for, and changed while they ran."""

    smaller_starts: int = 0
    shrunk: int = 0
    grown: int = 0
    moved: int = 0

    @property
    def are_any(self) -> bool:
        """Whether there was any of it."""
        return any(self)


class Locality(NamedTuple):
    """How near each other the GPUs of jobs of more than one GPU lay."""

    jobs: int
    bandwidth_to_ideal: float | None
    """Predicted to best possible bandwidth, the mean over jobs; None where no bandwidth is known."""
    at_ideal: float | None
    """The part of those jobs that got the best possible."""
    domains: Mapping[str, float]
    """Of each level, host included, how many of its domains a job used, the mean."""


@dataclass(frozen=True, slots=True)
class ReplayAccount:
    """The whole replay."""

    jobs: int
    ended_s: float
    """When the last job came or went."""
    came_s: float
    """When the last job came."""
    gpus: int
    """Those that a job of the trace could have had at the beginning."""
    waits: Waits | None
    """None where no job began."""
    foretold: Foretold | None
    """None where no job was told."""
    stopped: PreemptionCost
    resizes: Resizes
    locality: Locality
    allocated: float
    """The part of `gpus` that jobs of the trace held while jobs came, the mean over time."""
    scattered: float
    """Fragmentation.scattered while jobs came, the mean over the samples."""
    samples: Sequence[Sample]
    never: Mapping[Submission, Refusal]
    """Jobs that had not begun when nothing was to happen any more, and why."""


@dataclass(slots=True)
class Bookkeeper:
    """Follows a replay; what it is asked for is told at the end."""

    queue: Sharing
    last_comes_s: float
    """When the last job of the trace comes."""
    _waits: dict[Submission, float] = field(default_factory=dict)
    """Of each job until it began first."""
    _told: list[tuple[float, float]] = field(default_factory=list)
    """(said, was) of waits."""
    _began: dict[Submission, float] = field(default_factory=dict)
    _stopped: PreemptionCost = NOTHING_LOST
    _smaller_starts: int = 0
    _changes: Counter[EndReason] = field(default_factory=Counter)
    _gpus_of: dict[Submission, float] = field(default_factory=dict)
    """What each that runs has."""
    _ratios: list[float] = field(default_factory=list)
    _domains: Counter[str] = field(default_factory=Counter)
    _spread_jobs: int = 0
    _jobs: int = 0
    _waiting: set[Submission] = field(default_factory=set)
    _allocated: float = 0.0
    _gpu_seconds: float = 0.0
    _now_s: float = 0.0
    _samples: list[Sample] = field(default_factory=list)
    _gpus: int = field(init=False)

    def __post_init__(self) -> None:
        first = fragmentation(self.queue.operated.cluster, self.queue.operated.tables)
        self._gpus = first.free_gpus
        self._samples.append(Sample(0.0, 0.0, 0, first))

    def note(self, moment: ReplayMoment[Submission]) -> None:
        """What happened at the next moment."""
        until_s = min(moment.now_s, self.last_comes_s)
        self._gpu_seconds += self._allocated * max(0.0, until_s - self._now_s)
        self._now_s = max(self._now_s, moment.now_s)
        self._jobs += len(moment.came)
        self._waiting.update(moment.came)
        held = {job: self._gpus_of.pop(job) for job in (*moment.went, *moment.stopped)}
        self._allocated -= sum(held.values())
        for job in moment.stopped:
            lost = held[job] * (moment.now_s - self._began[job])
            self._stopped = PreemptionCost(self._stopped.times + 1, self._stopped.gpu_seconds + lost)
            self._waiting.add(job)
        for job in moment.began:
            self._waiting.discard(job)
            self._began[job] = moment.now_s
            if job not in self._waits:
                self._waits[job] = wait_s = moment.now_s - job.at_s
                if (said_s := self.queue.operated.estimate_s(job)) is not None:
                    self._told.append((said_s - job.at_s, wait_s))
            self._hold(job)
            self._smaller_starts += self._gpus_of[job] < job.gpus
            if job.spec.gpus > 1:
                self._note_placement(job)
        for job in moment.resized:
            self._hold(job)
        self._changes.update(self.queue.operated.changes.values())
        if moment.now_s >= len(self._samples) * self.last_comes_s / SAMPLES and moment.now_s <= self.last_comes_s:
            self._sample(moment.now_s)

    def account(self) -> ReplayAccount:
        """All of it; the replay has ended."""
        waits, refused = sorted(self._waits.values()), self.queue.refused()
        while_came = [sample for sample in self._samples[1:] or self._samples if sample.at_s <= self.last_comes_s]
        return ReplayAccount(
            jobs=self._jobs,
            ended_s=self._now_s,
            came_s=self.last_comes_s,
            gpus=self._gpus,
            waits=_waits(waits) if waits else None,
            foretold=_foretold(self._told) if self._told else None,
            stopped=self._stopped,
            resizes=Resizes(
                self._smaller_starts,
                self._changes[EndReason.SHRUNK],
                self._changes[EndReason.GROWN],
                self._changes[EndReason.MOVED],
            ),
            locality=self._locality(),
            allocated=self._gpu_seconds / (self.last_comes_s * self._gpus) if self.last_comes_s and self._gpus else 0.0,
            scattered=sum(sample.free.scattered for sample in while_came) / len(while_came),
            samples=tuple(self._samples),
            never={job: refused[job] for job in sorted(self._waiting, key=lambda job: job.number)},
        )

    def _hold(self, job: Submission) -> None:
        has = job.gpus if job.part < 1 else float(self.queue.operated.held_gpus(job))
        self._allocated += has - self._gpus_of.get(job, 0.0)
        self._gpus_of[job] = has

    def _sample(self, now_s: float) -> None:
        free = fragmentation(self.queue.operated.cluster, self.queue.operated.tables)
        self._samples.append(Sample(now_s, self._allocated, len(self._waiting), free))

    def _note_placement(self, job: Submission) -> None:
        found = self.queue.operated.placement(job)
        self._spread_jobs += 1
        predicted, ideal = found.predicted_bus_bandwidth_gb_s, found.ideal_bus_bandwidth_gb_s
        if predicted is not None and ideal:
            self._ratios.append(predicted / ideal)
        self._domains.update(dict(found.levels))
        self._domains["host"] += len(found.shares)

    def _locality(self) -> Locality:
        ratios, jobs = self._ratios, self._spread_jobs
        return Locality(
            jobs=jobs,
            bandwidth_to_ideal=sum(ratios) / len(ratios) if ratios else None,
            at_ideal=sum(ratio >= AT_IDEAL for ratio in ratios) / len(ratios) if ratios else None,
            domains={level: self._domains[level] / jobs for level in self.queue.operated.cluster.levels}
            if jobs
            else {},
        )


def _foretold(told: Sequence[tuple[float, float]]) -> Foretold:
    errors = sorted(abs(said_s - was_s) / max(was_s, SHORT_S) for said_s, was_s in told)
    latest = max(was_s / max(said_s, SHORT_S) for said_s, was_s in told)
    return Foretold(len(told), errors[(len(errors) - 1) // 2], latest)


def _waits(ascending: Sequence[float]) -> Waits:
    count = len(ascending)
    return Waits(
        mean_s=sum(ascending) / count,
        p50_s=ascending[(count - 1) // 2],
        p95_s=ascending[min(count - 1, count * 95 // 100)],
        longest_s=ascending[-1],
    )
