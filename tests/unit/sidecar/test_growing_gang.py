"""The whole gang of test_gang.py while it grows: nobody is told another size than those that he meets."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from closeknit.sidecar.gang.hub import PAUSES_S, Hub
from closeknit.sidecar.gang.member_state import Act, MemberState
from closeknit.sidecar.gang.protocol import Command, Order, Phase, Report
from unit.sidecar.test_gang import TICK_S, Gang, Pod


class GrowingPod(Pod):
    """One Pod with the size that its trainer would be told."""

    told = 0
    leaves_at: float | None = None


class GrowingGang(Gang):
    """A gang that grows at some moment, of which its meeting point hears later."""

    def __init__(self, size: int, random: Random) -> None:
        super().__init__(size, random)
        self.pods = [self.made(index, 0, size) for index in range(size)]
        self.made_with = self.annotated = size
        self.begun = 0

    def made(self, index: int, replacement: int, size: int) -> GrowingPod:
        pod = GrowingPod(index, replacement=replacement)
        pod.told = size
        return pod

    def grow(self, more: int) -> None:
        """The operator books nodes, and makes Pods there."""
        size = len(self.pods) + more
        self.pods += [self.made(index, 1, size) for index in range(len(self.pods), size)]

    def replace(self, pod: Pod) -> None:
        super().replace(pod)
        self.pods[pod.index] = self.made(pod.index, pod.replacement + 1, len(self.pods))
        if pod.index == 0:
            self.made_with = self.annotated = len(self.pods)
            self.begun = 0

    def decide(self) -> None:
        before = self.kept
        super().decide()
        if self.hub is not None and self.kept is not before:
            self.begun = self.hub.begun

    def step(self, pod: Pod) -> None:
        assert isinstance(pod, GrowingPod)
        if pod.index == 0 and pod.watch is None:
            pod.watch = MemberState(0, pod.folder, pod.replacement)
            began, quick, run, released, replaced = self.kept
            self.hub = Hub(self.made_with, max(run, pod.watch.run), began, quick, released, replaced, begun=self.begun)
            if began is None and pod.watch.run >= 0:
                self.hub.began, self.begun = self.now, self.hub.begun
                self.kept = (self.now, *self.kept[1:])
            if not pod.is_let_go:
                self.act(pod, pod.watch.barrier())
            return
        if self.hub is not None:
            self.hub.resize(self.annotated, self.annotated * 8)
            self.decide()
            if pod.index >= self.hub.size:  # refused
                pod.reports.clear()
        if pod.leaves_at is not None and self.now >= pod.leaves_at:
            self.reset(pod)
        elif pod.watch is None or self.hub is None or pod.index < self.hub.size:
            super().step(pod)

    def reset(self, pod: Pod) -> None:
        assert isinstance(pod, GrowingPod)
        pod.leaves_at = None
        super().reset(pod)

    def act(self, pod: Pod, act: Act | None) -> None:
        assert isinstance(pod, GrowingPod) and pod.watch is not None
        if pod.leaves_at is not None and act in {Act.RESET, Act.LEAVE}:
            return
        if act is Act.LEAVE:
            pod.leaves_at = self.now + self.random.choice([0.0, 1.0, 30.0])
            return
        if act is Act.LET_GO and pod.watch.size is not None:
            pod.told = pod.watch.size[0]
        super().act(pod, act)
        if act is Act.LET_GO:
            pods = (each for each in self.pods if isinstance(each, GrowingPod))
            beside = {other.told for other in pods if other.trainer == pod.trainer}
            assert beside == {pod.told}, f"ranks of run {pod.trainer} are told {beside}"


@given(size=st.integers(2, 4), more=st.integers(1, 3), seed=st.integers(0, 1 << 32), faults=st.integers(0, 12))
@settings(max_examples=60, deadline=None)
def test_whatever_goes_wrong_all_are_told_one_size_and_in_the_end_all_run_with_the_new_one(
    size: int, more: int, seed: int, faults: int
) -> None:
    gang = GrowingGang(size, Random(seed))  # noqa: S311 - chance that can be repeated
    grows, told = sorted(gang.random.randrange(faults + 2) for _ in range(2))
    for at in range(faults + 2):
        if at == grows:
            gang.grow(more)
        if at == told:
            gang.annotated = len(gang.pods)
        for _ in range(gang.random.randrange(30)):
            gang.turn()
        if at < faults:
            gang.fault()
    for _ in range(round(2 * sum(PAUSES_S) / TICK_S) + 600):
        gang.turn()
    assert len(gang.runs) == 1 and gang.runs != {None}
    assert {pod.told for pod in gang.pods if isinstance(pod, GrowingPod)} == {size + more}


def test_who_hears_late_of_a_run_is_told_the_size_that_it_began_with() -> None:
    hub = Hub(2, 3, 0.0)
    hub.resize(2, 16)
    for index in range(2):
        hub.hear(Report(index, Phase.WAITING, 3, f"old{index}"), 100.0)
    assert hub.release(100.0)
    hub.resize(3, 24)
    assert hub.order(1) == Order(Command.GO, 4, "old1", 2, 16)
