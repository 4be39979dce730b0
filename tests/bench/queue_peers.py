"""Orders of other schedulers, each as its project tells it: docs/peers.md says where, and
tests/unit/simulation/test_queue_peers.py holds them to it.

FIFO, strict FIFO, best-effort FIFO, EASY and QSSF let nobody stop who runs: `Ordered`, on the one loop of replays. LAS
stops jobs and pays for it, SRPT stops them for nothing and knows no hosts: `attained`, `shortest_remaining`.
"""

from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop
from math import inf

from bench.clos import GPUS, Host, Job, Taken
from bench.clos_peers import PEERS, Peer, Rule
from bench.queue_lists import QueueJob, stretched_s

# Tiresias (NSDI'19) with two queues, as Lucid's simulator has it: jobs that have had more GPU-seconds stand behind.
THRESHOLD_GPU_S = 18_000.0
ROUND_S = 60.0
STOPPED_S = 62.0  # what a stop costs, as Tiresias measured it (section 5.2.4: 13,724 s of 221)
SHORTEST_S = 60.0  # an expected end is moved by no less
STEPS = 8


def consolidate(peer: Peer, job: Job) -> Taken | None:
    """Helios' and Lucid's placement: the fullest host that has room, and whole hosts as they stand."""
    if job.gpus < GPUS:
        return peer.part(job, peer.fullest)
    whole = peer.whole(range(len(peer.free)))
    return [(host, GPUS) for host in whole[: job.hosts]] if len(whole) >= job.hosts else None


@dataclass(frozen=True)
class OrderRule:
    """Who goes first, who may pass, and who places."""

    order: Callable[[QueueJob], tuple[float, float]]
    is_strict: bool
    """Whether the first that does not fit blocks all behind it."""
    place: Rule
    keeps_room: bool = False
    """EASY: the others pass that end before the first one's moment, or leave what it needs then."""


def by_age(job: QueueJob) -> tuple[float, float]:
    """Whoever came first."""
    return job.at_s, job.number


def by_guess(job: QueueJob) -> tuple[float, float]:
    """QSSF: the smallest product of guessed time and GPUs."""
    return job.guessed_s * job.gpus, job.number


def by_declared(job: QueueJob) -> tuple[float, float]:
    """The same by what jobs declare, which QSSF does not know."""
    return job.declared_s * job.gpus, job.number


ORDERS = {
    "fifo": OrderRule(by_age, True, consolidate),
    "strict fifo": OrderRule(by_age, True, PEERS["kueue preferred"]),
    "best-effort fifo": OrderRule(by_age, False, PEERS["kueue preferred"]),
    "easy": OrderRule(by_age, False, PEERS["kueue preferred"], keeps_room=True),
    "qssf": OrderRule(by_guess, True, consolidate),
}
TOLD = OrderRule(by_declared, True, consolidate)
"""QSSF that is told what ours is told; nobody publishes it."""


def asked_of(job: QueueJob) -> Job:
    """As a rule for hosts knows it."""
    return Job(job.number, job.at_s, job.gpus, job.alone_s)


class Ordered:
    """The queue of a replay by one of these rules."""

    def __init__(self, fabric: Sequence[Host], rule: OrderRule) -> None:
        self._fabric, self._rule = fabric, rule
        self._peer = Peer(fabric, rule.place)
        self._waiting: list[QueueJob] = []
        self.taken: dict[QueueJob, Taken] = {}
        self.began_s: dict[QueueJob, float] = {}

    def come(self, job: QueueJob, _now_s: float) -> None:
        """In its place."""
        insort(self._waiting, job, key=self._rule.order)

    def go(self, job: QueueJob, _now_s: float) -> None:
        """What it had is given back."""
        self._peer.give_back(asked_of(job), self.taken.pop(job))

    def begun(self, now_s: float) -> Sequence[QueueJob]:
        """Those that the rule lets begin."""
        found: list[QueueJob] = []
        kept: Kept | None = None
        for job in self._waiting:
            if not any(self._peer.free):
                break
            taken = self._peer.take(asked_of(job), now_s, 0)
            if taken is not None and kept is not None and now_s + job.declared_s > kept.at_s:
                taken = kept.beside(self._peer, self._rule.place, job, taken)
            if taken is None and kept is None:
                if self._rule.is_strict:
                    break
                kept = self._kept(job, now_s) if self._rule.keeps_room else None
            if taken is None:
                continue
            self.taken[job], self.began_s[job] = taken, now_s
            job.run_s = stretched_s(job, [self._fabric[host] for host, _ in taken], len(taken))
            found.append(job)
        begun = set(found)
        self._waiting = [job for job in self._waiting if job not in begun]
        return found

    def stopped(self) -> Sequence[QueueJob]:
        """Nobody stops who runs."""
        return ()

    def resized(self) -> Sequence[tuple[QueueJob, float]]:
        """Nobody's GPUs change while it runs."""
        return ()

    def wake_s(self, _now_s: float) -> None:
        """Nothing happens by itself."""

    def _kept(self, job: QueueJob, now_s: float) -> "Kept":
        """When it fits by the ends that running jobs declare, and what is free then beside it."""
        then = Peer(self._fabric, self._rule.place)
        then.free = list(self._peer.free)
        at_s = now_s
        ends_s = ((expected_end_s(each, self.began_s[each], now_s), each.number, each) for each in self.taken)
        for at_s, _, ends in sorted(ends_s):
            then.give_back(asked_of(ends), self.taken[ends])
            if then.take(asked_of(job), now_s, 0) is not None:
                return Kept(at_s, then.free)
        raise AssertionError(f"job {job.number} fits nowhere")


def expected_end_s(job: QueueJob, began_s: float, now_s: float) -> float:
    """As declared, and in growing steps later where it runs longer."""
    at_s, step_s = began_s + job.declared_s, max(job.declared_s / STEPS, SHORTEST_S)
    while at_s <= now_s:
        at_s, step_s = at_s + step_s, 2 * step_s
    return at_s


@dataclass
class Kept:
    """Room for the first job that does not fit."""

    at_s: float
    left: list[int]
    """GPUs of each host beside the first job at that moment."""

    def beside(self, peer: Peer, place: Rule, job: QueueJob, taken: Taken) -> Taken | None:
        """What another may have without delaying the first; `taken` is given back where that is something else."""
        if any(self.left[host] < gpus for host, gpus in taken):
            peer.give_back(asked_of(job), taken)
            free, peer.free = peer.free, list(map(min, peer.free, self.left))
            found = place(peer, asked_of(job))
            peer.free = free
            if found is None:
                return None
            taken = found
            for host, gpus in taken:
                peer.free[host] -= gpus
        for host, gpus in taken:
            self.left[host] -= gpus
        return taken


@dataclass(eq=False)
class Stopping:
    """A job that may be stopped and go on."""

    job: QueueJob
    left_s: float
    attained_gpu_s: float = 0.0
    speed: float = 1.0
    taken: Taken | None = None
    began_s: float | None = None
    ended_s: float = 0.0
    stops: int = 0


@dataclass
class _Clock:
    coming: list[tuple[float, int, QueueJob]]
    active: list[Stopping] = field(default_factory=list)
    ended: list[Stopping] = field(default_factory=list)
    running: list[Stopping] = field(default_factory=list)
    now_s: float = 0.0

    @classmethod
    def of(cls, jobs: Sequence[QueueJob]) -> "_Clock":
        coming = [(job.at_s, job.number, job) for job in jobs]
        heapify(coming)
        return cls(coming)

    def advance(self, to_s: float) -> list[Stopping]:
        """Those that come and go until then; who runs goes on."""
        for each in self.running:
            passed_s = to_s - self.now_s
            each.left_s -= passed_s * each.speed
            each.attained_gpu_s += passed_s * each.job.gpus
        self.now_s = to_s
        while self.coming and self.coming[0][0] <= to_s:
            job = heappop(self.coming)[2]
            self.active.append(Stopping(job, job.alone_s))
        gone = [each for each in self.running if each.left_s <= 1e-6]
        for each in gone:
            each.ended_s = to_s
            self.active.remove(each)
            self.running.remove(each)
        self.ended += gone
        return gone


def attained(jobs: Sequence[QueueJob], fabric: Sequence[Host]) -> list[Stopping]:
    """LAS as Tiresias has it, by rounds: two queues by attained service, each by age; who no longer has a turn stops,
    and who has one runs where `consolidate` has room."""
    clock, peer = _Clock.of(jobs), Peer(fabric, consolidate)
    turns_at_s = inf
    while clock.coming or clock.active:
        happens = [clock.now_s + each.left_s / each.speed for each in clock.running]
        happens += [clock.coming[0][0]] if clock.coming else []
        if len(clock.running) < len(clock.active):
            happens += [
                clock.now_s + (THRESHOLD_GPU_S - each.attained_gpu_s) / each.job.gpus + 1e-3
                for each in clock.running
                if each.attained_gpu_s <= THRESHOLD_GPU_S
            ]
        next_s = min([*happens, turns_at_s])
        for each in clock.advance(next_s):
            peer.give_back(asked_of(each.job), each.taken or ())
        if next_s < turns_at_s:
            turns_at_s = min(turns_at_s, -(-next_s // ROUND_S) * ROUND_S)
        else:
            _turns(clock, peer, fabric, len(fabric) * GPUS)
            turns_at_s = inf
    return clock.ended


def _turns(clock: _Clock, peer: Peer, fabric: Sequence[Host], room: int) -> None:
    clock.active.sort(key=lambda each: (each.attained_gpu_s > THRESHOLD_GPU_S, *by_age(each.job)))
    chosen: list[Stopping] = []
    for each in clock.active:
        if each.job.gpus <= room:
            room -= each.job.gpus
            chosen.append(each)
        if not room:
            break
    turn = set(map(id, chosen))
    for each in [each for each in clock.running if id(each) not in turn]:
        peer.give_back(asked_of(each.job), each.taken or ())
        each.taken, each.stops = None, each.stops + 1
        each.left_s += STOPPED_S
        clock.running.remove(each)
    for each in chosen:
        if each.taken is not None:
            continue
        each.taken = peer.take(asked_of(each.job), clock.now_s, 0)
        if each.taken is not None:
            each.began_s = clock.now_s if each.began_s is None else each.began_s
            places = [fabric[host] for host, _ in each.taken]
            each.speed = each.job.alone_s / stretched_s(each.job, places, len(each.taken))
            clock.running.append(each)


def shortest_remaining(jobs: Sequence[QueueJob], gpus: int, *, is_by_area: bool) -> list[Stopping]:
    """SRPT with perfect knowledge, by what remains of a job's time, or of that times its GPUs: stops and moves cost
    nothing, and a job runs anywhere. Nobody can do it: how far a rule is from the least there is."""
    clock = _Clock.of(jobs)
    while clock.coming or clock.active:
        ends = [clock.now_s + each.left_s for each in clock.running]
        clock.advance(min([*ends, *([clock.coming[0][0]] if clock.coming else [])]))
        clock.active.sort(key=lambda each: (each.left_s * (each.job.gpus if is_by_area else 1), each.job.number))
        left, clock.running = gpus, []
        for each in clock.active:
            if each.job.gpus <= left:
                left -= each.job.gpus
                clock.running.append(each)
                each.began_s = clock.now_s if each.began_s is None else each.began_s
            if not left:
                break
    return clock.ended
