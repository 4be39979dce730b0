"""The constants of the queue, each beside others: the tables of docs/queueing.md.

    PYTHONPATH=tests uv run python -m bench.queue_constants [ROW ...]

The real queue takes an hour for the lists of `make bench-queue`. This is a model of it that takes a second for a third
of one: EASY of queue_peers.py with closeknit's order, a reservation that stays with its job, and the moment that it is
told. Each figure is the mean over three thirds of a list, every third job from the first, the second and the third on;
in brackets is the worst of the three. A row is one constant off: "times" what a job declares it stands back, "days" it
does at most, "GPUs" to which power its declaration is weighted, "allowed" how many eighths of what it declares a
running job may take longer. The others are orders that closeknit does not have: what a job stands back at most grows
with its hosts, room is kept for nobody who has not waited so long, and who is not reserved is asked by the length of
its run, or by that times its GPUs, until it has waited for so many days.
"""

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cache
from math import ceil, inf

from bench.chart import table
from bench.clos import Host, Taken
from bench.clos_peers import PEERS as RULES
from bench.clos_peers import Peer
from bench.queue_lists import SWITCHES, QueueJob, fabric, jobs, stretched_s
from bench.queue_peers import ORDERS, STEPS, Kept, Ordered, asked_of, attained, expected_end_s
from closeknit.simulation.account import SHORT_S
from closeknit.simulation.replay import replay

THIRDS = 3
DAY_S = 86_400.0
HOUR_S = 3_600.0
PLACE = RULES["kueue preferred"]


class Passes(Enum):
    """The order of those who wait behind the reserved job."""

    BY_PLACE = auto()
    BY_TIME = auto()
    BY_GPU_TIME = auto()


@dataclass(frozen=True)
class Constants:
    """Of one queue; by default as closeknit has them (scheduling/queue/entries.py, reservation/expected_ends.py)."""

    times: float = 4
    days: float = 6
    power: float = 0
    allowed: int = 6
    hosts_power: float = 0
    """To which power of its hosts a job stands back more at most."""
    patience_h: float = 0
    """How long a job waits before room is kept for it."""
    passes: Passes = Passes.BY_PLACE
    by_place_after_days: float = inf
    """How long a job waits before it is asked by its place again, and before those that have waited less."""

    def due(self, job: QueueJob) -> tuple[float, float]:
        """Where a job stands."""
        back_s = self.times * max(SHORT_S, job.declared_s) * job.gpus**self.power
        return job.at_s + min(back_s, self.days * DAY_S * job.hosts**self.hosts_power), job.number

    def turn(self, job: QueueJob, now_s: float) -> tuple[bool, float, float]:
        """When a job is asked that no room is kept for."""
        if self.passes is Passes.BY_PLACE or now_s - job.at_s >= self.by_place_after_days * DAY_S:
            return False, *self.due(job)
        return True, job.declared_s * (job.gpus if self.passes is Passes.BY_GPU_TIME else 1), job.number


OURS = Constants()
ROWS = {
    "as it is": OURS,
    **{f"{times} times": replace(OURS, times=times) for times in (1, 2, 3, 5, 10)},
    **{f"{days} days": replace(OURS, days=days) for days in (1, 2, 4, 8)},
    **{f"GPUs^{power}": replace(OURS, power=power) for power in (0.25, 0.5, 1)},
    **{f"allowed {steps}/8": replace(OURS, allowed=steps) for steps in (0, 2, 3, 4)},
    **{f"days by hosts^{power}": replace(OURS, hosts_power=power) for power in (0.25, 0.5)},
    **{f"reserved after {hours} h": replace(OURS, patience_h=hours) for hours in (24, 96)},
    "never reserved": replace(OURS, patience_h=inf),
    "short ones pass first": replace(OURS, passes=Passes.BY_TIME),
    "short ones pass first, 3 days": replace(OURS, passes=Passes.BY_TIME, days=3),
    "short ones pass first, 3 days, then by place": replace(OURS, passes=Passes.BY_TIME, days=3, by_place_after_days=3),
    "small ones pass first": replace(OURS, passes=Passes.BY_GPU_TIME),
}


class Model:
    """closeknit's queue in short."""

    def __init__(self, hosts: Sequence[Host], constants: Constants) -> None:
        self._hosts, self._constants = hosts, constants
        self._peer = Peer(hosts, PLACE)
        self._waiting: list[QueueJob] = []
        self._taken: dict[QueueJob, Taken] = {}
        self._began_s: dict[QueueJob, float] = {}
        self._kept_for: QueueJob | None = None
        self._told_s: dict[QueueJob, float] = {}
        """When the reserved job is expected to start."""
        self._first_told_s: dict[QueueJob, float] = {}
        self._wake_s: float | None = None
        self.estimates: list[tuple[float, float]] = []
        """(said, was): waits of jobs that were told when they would start."""

    def come(self, job: QueueJob, _now_s: float) -> None:
        """At the end, until the next decision."""
        self._waiting.append(job)

    def go(self, job: QueueJob, _now_s: float) -> None:
        """What it had is given back."""
        self._peer.give_back(asked_of(job), self._taken.pop(job))

    def begun(self, now_s: float) -> Sequence[QueueJob]:
        """Those that fit, in order, and do not delay the first that does not."""
        found: dict[QueueJob, None] = {}
        kept: Kept | None = None
        kept_for, is_late = None, False
        self._wake_s = None
        self._waiting.sort(key=lambda job: (job is not self._kept_for, *self._constants.due(job)))
        waited_s = self._constants.patience_h * HOUR_S
        for job in [job for job in self._waiting if now_s - job.at_s >= waited_s]:
            if self._starts(job, None, now_s):
                found[job] = None
                continue
            kept_for, (kept, is_late) = job, self._kept(job, now_s)
            break
        others = [job for job in self._waiting if job not in found and job is not kept_for]
        for job in sorted(others, key=lambda job: self._constants.turn(job, now_s)):
            if not any(self._peer.free):
                break
            if self._starts(job, kept, now_s, is_late=is_late):
                found[job] = None
        self._kept_for = kept_for
        self._waiting = [job for job in self._waiting if job not in found]
        return list(found)

    def _starts(self, job: QueueJob, kept: Kept | None, now_s: float, *, is_late: bool = False) -> bool:
        taken = self._peer.take(asked_of(job), now_s, 0) if any(self._peer.free) else None
        if taken is not None and kept is not None and (is_late or now_s + job.declared_s > kept.at_s):
            taken = kept.beside(self._peer, PLACE, job, taken)
        if taken is not None:
            self._begin(job, taken, now_s)
        return taken is not None

    def stopped(self) -> Sequence[QueueJob]:
        """Nobody stops who runs."""
        return ()

    def resized(self) -> Sequence[tuple[QueueJob, float]]:
        """Nobody's GPUs change while it runs."""
        return ()

    def wake_s(self, _now_s: float) -> float | None:
        """When a running job is expected to end, while another waits."""
        return self._wake_s

    def _begin(self, job: QueueJob, taken: Taken, now_s: float) -> None:
        self._taken[job], self._began_s[job] = taken, now_s
        job.run_s = stretched_s(job, [self._hosts[host] for host, _ in taken], len(taken))
        if job in self._first_told_s:
            self.estimates.append((self._first_told_s[job] - job.at_s, now_s - job.at_s))

    def _kept(self, job: QueueJob, now_s: float) -> tuple[Kept, bool]:
        """Room for the job, and whether one that it waits for runs longer than it declared."""
        then = Peer(self._hosts, PLACE)
        then.free, free = list(self._peer.free), sum(self._peer.free)
        ended: list[QueueJob] = []
        ends_s = sorted((self._end_s(each, job, now_s), each.number, each) for each in self._taken)
        self._wake_s = min(expected_end_s(each, self._began_s[each], now_s) for each in self._taken)
        for at_s, _, each in ends_s:
            then.give_back(asked_of(each), self._taken[each])
            free += each.gpus
            ended.append(each)
            taken = then.take(asked_of(job), now_s, 0) if free >= job.gpus else None
            if taken is not None:
                there = {host for host, _ in taken}
                awaited = [each for each in ended if any(host in there for host, _ in self._taken[each])] or ended[-1:]
                self._told_s[job] = at_s
                self._first_told_s.setdefault(job, at_s)
                soonest_s = max(expected_end_s(each, self._began_s[each], now_s) for each in ended)
                is_late = any(self._began_s[each] + each.declared_s <= now_s for each in awaited)
                return Kept(soonest_s, then.free), is_late
        raise AssertionError(f"job {job.number} fits nowhere")

    def _end_s(self, running: QueueJob, job: QueueJob, now_s: float) -> float:
        """When a running job is expected to end for one that waits (scheduling/reservation/expected_ends.py)."""
        began_s, step_s = self._began_s[running], running.declared_s / STEPS
        soonest_s = expected_end_s(running, began_s, now_s)
        steps = self._constants.allowed
        latest_s = began_s + running.declared_s + steps * step_s
        found_s = (began_s + running.declared_s + step * step_s for step in range(steps + 1))
        at_s = next((each for each in found_s if each > now_s and 2 * (each - now_s) >= latest_s - now_s), soonest_s)
        return max(soonest_s, min(at_s, self._told_s.get(job, at_s)))


def _p95(values: Sequence[float]) -> float:
    return sorted(values)[ceil(len(values) * 0.95) - 1]


@cache
def best_of_peers(name: str, first: int) -> tuple[float, float, float]:
    """The least mean and p95 of completions by others, and the longest wait of FIFO, in seconds."""
    hosts, completed, longest_s = fabric(name), list[list[float]](), 0.0
    for rule, order in ORDERS.items():
        moments = replay(jobs(name, part=THIRDS, first=first), Ordered(hosts, order))
        began = {job: moment.now_s for moment in moments for job in moment.began}
        completed.append([at_s + job.run_s - job.at_s for job, at_s in began.items()])
        if rule == "fifo":
            longest_s = max(at_s - job.at_s for job, at_s in began.items())
    ended = attained(jobs(name, part=THIRDS, first=first), hosts)
    completed.append([each.ended_s - each.job.at_s for each in ended])
    return min(map(statistics.fmean, completed)), min(map(_p95, completed)), longest_s


def row(constants: Constants) -> tuple[str, ...]:
    """The figures of a queue with these constants: of each list, and of the estimates of all."""
    cells, told = list[str](), list[tuple[float, float]]()
    for name in SWITCHES:
        ratios: list[tuple[float, float, float]] = []
        for first in range(THIRDS):
            queue = Model(fabric(name), constants)
            moments = replay(jobs(name, part=THIRDS, first=first), queue)
            began = {job: moment.now_s for moment in moments for job in moment.began}
            completed = [at_s + job.run_s - job.at_s for job, at_s in began.items()]
            mean_s, p95_s, longest_s = best_of_peers(name, first)
            longest = max(at_s - job.at_s for job, at_s in began.items()) / longest_s
            ratios.append((statistics.fmean(completed) / mean_s, _p95(completed) / p95_s, longest))
            told += queue.estimates
        mean, p95, wait = map(statistics.fmean, zip(*ratios, strict=True))
        worst = max(longest for _, _, longest in ratios)
        cells.append(f"{mean:.3f}, {p95:.3f}, {wait:.2f} ({worst:.2f})")
    if not told:
        return (*cells, "", "")
    errors = sorted(abs(said - was) / max(was, SHORT_S) for said, was in told)
    late = max(was / max(said, SHORT_S) for said, was in told)
    return (*cells, f"{errors[len(errors) // 2]:.3f}", f"{late:.1f}")


def main() -> None:
    """The rows that are named, or all."""
    header = ("", *(f"{name}: mean, p95, longest" for name in SWITCHES), "median error", "latest")
    print(table(header, [(name, *row(ROWS[name])) for name in sys.argv[1:] or ROWS]))


if __name__ == "__main__":
    main()
