"""A whole gang in one process, with lost connections, dying watches and crashes in every order.

No rank of a run may start while one of an earlier run is there; and once nothing goes wrong any more, all ranks run in
one run.
"""

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closeknit.sidecar.gang.hub import PAUSES_S, QUICK_S, Hub
from closeknit.sidecar.gang.member_state import Act, MemberState
from closeknit.sidecar.gang.protocol import Command, Order, Phase, Report

TICK_S = 0.2


@dataclass
class Pod:
    """One Pod as its kubelet has it."""

    index: int
    folder: int | None = None
    """The last run that it was let go for, which outlives its containers."""
    trainer: int | None = None
    """The run of its trainer, while that runs."""
    watch: MemberState | None = None
    is_let_go: bool = False
    """Whether its barrier has ended."""
    is_barrier: bool = False
    """Whether its sidecar is still the barrier that has let it go."""
    reports: list[Report] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    replacement: int = 0


class Gang:
    """All Pods, and what is under way between them."""

    def __init__(self, size: int, random: Random) -> None:
        self.pods = [Pod(index) for index in range(size)]
        self.random = random
        self.now = 0.0
        self.hub: Hub | None = None
        self.kept: tuple[float | None, int, int, dict[int, str], dict[int, int]] = (None, 0, -1, {}, {})
        self.starts = 0
        self.outlived: list[Pod] = []
        """On lost nodes, whose network may be back."""

    def fault(self) -> None:
        """One thing goes wrong."""
        pod = self.random.choice(self.pods)
        match self.random.randrange(6):
            case 0 if pod.trainer is not None:  # its wrapper tells of it
                if pod.watch is not None:
                    pod.watch.trainer_ended(is_for_good=False)
                pod.trainer = None
                if self.random.random() < 0.5:
                    self.step(pod)  # before the kubelet comes
                self.reset(pod)
            case 1 if pod.trainer is not None:  # nobody tells of it
                self.reset(pod)
            case 2:
                self.kill_watch(pod)
            case 3:
                self.disconnect(pod)
            case 4:
                self.reset(pod)
            case 5:
                self.replace(pod)

    def replace(self, pod: Pod) -> None:
        """Its node is lost, and a new Pod takes its place: the operator tells a new meeting point who was replaced."""
        self.disconnect(pod)
        self.outlived.append(pod)
        self.pods[pod.index] = Pod(pod.index, replacement=pod.replacement + 1)
        if pod.index == 0:
            self.hub = None
            self.kept = (None, 0, -1, {}, {each.index: each.replacement for each in self.pods if each.replacement})
            for other in self.pods:
                self.disconnect(other)

    def haunt(self) -> None:
        """An outlived Pod reports what was true when its node was lost."""
        for pod in self.outlived:
            if pod.index > 0 and self.hub is not None and pod.watch is not None and self.random.random() < 0.1:
                report = pod.watch.report
                if self.hub.is_outlived(report):
                    self.hub.hear(report, self.now)
                    self.decide()
                    order = self.hub.order_to_outlived(report)
                    assert order.command in {Command.RESET, Command.GIVE_UP, Command.STAY}
                    if pod.watch.obey(order) is Act.RESET:
                        pod.watch = None  # and no barrier of it lets it go

    def reset(self, pod: Pod) -> None:
        """All its containers end, and start again later."""
        pod.trainer, pod.is_let_go = None, False
        self.kill_watch(pod)

    def kill_watch(self, pod: Pod) -> None:
        pod.watch = None
        self.disconnect(pod)
        if pod.index == 0:
            self.hub = None
            for other in self.pods:
                self.disconnect(other)

    def disconnect(self, pod: Pod) -> None:
        pod.reports.clear()
        pod.orders.clear()

    def step(self, pod: Pod) -> None:
        """One of the things that may happen next to this Pod happens."""
        if pod.watch is None:
            pod.watch = MemberState(pod.index, pod.folder, pod.replacement)
            if pod.index == 0:
                began, quick, run, released, replaced = self.kept
                self.hub = Hub(len(self.pods), max(run, pod.watch.run), began, quick, released, replaced)
            if not pod.is_let_go:
                self.act(pod, pod.watch.barrier())
            return
        if pod.is_let_go and pod.is_barrier and (pod.index > 0 or self.random.random() < 0.3):
            self.kill_watch(pod)  # the barrier ends, and the watch follows
            pod.is_barrier = False
            return
        if self.hub is not None:
            if pod.index == 0:
                self.hub.hear(pod.watch.report, self.now)
                self.decide()
                self.act(pod, pod.watch.obey(self.hub.order(0)))
            elif self.random.random() < 0.7:
                pod.reports.append(pod.watch.report)
        if pod.reports and self.hub is not None and self.random.random() < 0.7:
            self.hub.hear(pod.reports.pop(0), self.now)
            self.decide()
            pod.orders.append(self.hub.order(pod.index))
        if pod.orders and pod.watch is not None and self.random.random() < 0.7:
            self.act(pod, pod.watch.obey(pod.orders.pop(0)))

    def decide(self) -> None:
        assert self.hub is not None
        hub = self.hub
        if hub.release(self.now) or hub.replaced != self.kept[-1]:
            self.kept = hub.began, hub.quick, hub.run, dict(hub.released), dict(hub.replaced)

    def act(self, pod: Pod, act: Act | None) -> None:
        assert pod.watch is not None
        if act is Act.LET_GO:
            assert pod.trainer is None
            pod.folder = pod.trainer = pod.watch.run
            pod.is_let_go = pod.is_barrier = True
            self.starts += 1
            older = [other.trainer for other in self.pods if other.trainer is not None and other.trainer < pod.trainer]
            assert not older, f"run {pod.trainer} begins beside run {older[0]}"
        elif act is Act.RESET:
            self.reset(pod)
        assert act is not Act.GIVE_UP

    def turn(self) -> None:
        """Something happens to each Pod, in some order."""
        self.now += TICK_S
        for pod in self.random.sample(self.pods, len(self.pods)):
            self.step(pod)
        self.haunt()

    @property
    def runs(self) -> set[int | None]:
        return {pod.trainer for pod in self.pods}


@given(size=st.integers(1, 6), seed=st.integers(0, 1 << 32), faults=st.integers(0, 12))
@settings(max_examples=60, deadline=None)
def test_no_run_begins_beside_an_older_one_and_in_the_end_all_run(size: int, seed: int, faults: int) -> None:
    gang = Gang(size, Random(seed))  # noqa: S311 - chance that can be repeated
    for _ in range(faults):
        for _ in range(gang.random.randrange(30)):
            gang.turn()
        gang.fault()
    for _ in range(round(2 * sum(PAUSES_S) / TICK_S) + 400):
        gang.turn()
    assert len(gang.runs) == 1 and gang.runs != {None}
    before = gang.starts
    for _ in range(50):
        gang.turn()
    assert gang.starts == before, "it goes on starting though nothing happens"


def test_a_gang_that_starts_waits_for_nobody() -> None:
    pod = MemberState(1, None)
    assert pod.barrier() is Act.LET_GO
    assert pod.report == Report(1, Phase.RUNNING, 0)


def test_who_is_late_by_a_whole_run_leaves_it() -> None:
    """A Pod that starts when the others have crashed already."""
    hub = Hub(2, run=1)
    late = MemberState(1, None)
    late.barrier()
    hub.hear(late.report, 0.0)
    assert late.obey(hub.order(1)) is Act.RESET


def test_silence_resets_nobody() -> None:
    hub = Hub(2)
    members = [MemberState(index, None) for index in range(2)]
    for member in members:
        member.barrier()
        hub.hear(member.report, 0.0)
    for moment in range(1000):
        hub.hear(members[0].report, float(moment))
        assert not hub.release(float(moment))
        assert hub.order(0).command is Command.STAY
    assert not hub.is_whole(999.0)


@pytest.mark.parametrize("phase", [Phase.OVER, Phase.LEAVING])
def test_who_ends_well_is_no_failure(phase: Phase) -> None:
    hub = Hub(2, run=0)
    hub.hear(Report(0, Phase.RUNNING, 0), 0.0)
    hub.hear(Report(1, phase, 0), 0.0)
    assert hub.order(0).command is (Command.GIVE_UP if phase is Phase.OVER else Command.STAY)
    assert not hub.is_called
    assert hub.is_whole(1e6) is False and hub.is_whole(1.0)


def test_beside_one_that_is_over_no_run_can_begin() -> None:
    hub = Hub(3, run=0)
    hub.hear(Report(0, Phase.RUNNING, 0), 0.0)
    hub.hear(Report(1, Phase.OVER, 0), 0.0)
    hub.hear(Report(2, Phase.WAITING, 0, "x"), 0.0)
    running = MemberState(0, 0)
    assert running.obey(hub.order(0)) is Act.GIVE_UP, "which it keeps for its next barrier"
    assert running.phase is Phase.RUNNING, "the operator decides what becomes of it"
    assert hub.order(2).command is Command.GIVE_UP
    waiting = MemberState(2, 0)
    waiting.barrier()
    assert waiting.obey(hub.order(2)) is Act.GIVE_UP


def test_quick_runs_are_held_back_longer_and_longer() -> None:
    hub, now, pauses = Hub(1), 0.0, []
    for run in range(10):
        hub.hear(Report(0, Phase.WAITING, run - 1, f"wait {run}"), now)
        began = now
        while not hub.release(now):
            now += 0.5
        pauses.append(now - began)
        now += 5.0
    assert pauses == [0.0, *PAUSES_S[1:], PAUSES_S[-1], PAUSES_S[-1]]
    now += QUICK_S
    hub.hear(Report(0, Phase.WAITING, 9, "after a long run"), now)
    assert hub.release(now)


def test_a_clock_that_is_set_back_holds_nobody_back() -> None:
    hub = Hub(1, run=8, began=1000.0, quick=7)
    hub.hear(Report(0, Phase.WAITING, 8, "wait"), 1001.0)
    assert not hub.release(1001.0)
    assert hub.release(10.0)


def test_an_order_that_comes_late_lets_nobody_go() -> None:
    """Let go for run 1, which is over before that was heard."""
    member = MemberState(1, 0)
    member.barrier()
    old = Order(Command.GO, 1, member.report.nonce)
    assert member.obey(Order(Command.RESET, 1)) is None
    assert member.obey(old) is None
    assert member.obey(Order(Command.GO, 2, member.report.nonce)) is Act.LET_GO
