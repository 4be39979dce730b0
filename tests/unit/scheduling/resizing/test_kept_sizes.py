"""Memory alters no verdict where jobs are elastic and move: random lives on few nodes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from scenarios.story import plugin_node
from unit.scheduling.preemption.test_kept_verdicts import Crowded
from unit.scheduling.test_incremental import Life

STEPS = 40
SHORT = (1, 4)  # of the first ones those in which jobs do all that they can do


class Resizing(Crowded):
    """A life in which most jobs may go on with fewer GPUs, and move when they start again."""

    def submit(self, name: str, spec: Mapping[str, Any]) -> None:
        bounds: dict[str, Any] = {"elastic": {"minGPUs": 2}} if spec["gpus"] >= 4 and "parallelism" not in spec else {}
        super().submit(name, {**spec, **bounds, "restart": {"limit": 9}, "defragment": "OnRestart"})

    def _events(self) -> Sequence[Callable[[], None]]:
        return (
            *super()._events(),
            *[self.story.end_stopped] * 2,
            *[self.story.run_all] * 2,
            *[self._pause] * 3,
            *[self._give_up] * 3,
        )

    def _give_up(self) -> None:
        """Whoever waits for room is deleted."""
        for key, job in self.cluster.jobs.items():
            if job.status.placement is None and not job.status.attempts:
                self.story.objects.pop(("TrainingJob", *key), None)

    def _pause(self) -> None:
        self.story.pass_time(330)

    def step(self) -> None:
        super().step()
        if self.made % 4 == 0:
            self._give_up()

    def rest(self) -> None:
        """All but those that run with fewer GPUs are deleted, and there is peace."""
        for key, job in self.cluster.jobs.items():
            if job.status.placement is None or job.status.placement.gpus is None:
                self.story.objects.pop(("TrainingJob", *key), None)
                for name in [name for name in self.story.pods() if name.startswith(f"{key.name}-a")]:
                    self.story.remove_pod(name)
        for _ in range(8):
            self.story.end_stopped()
            self.story.run_all()
            self.decide()
            self.check()
            self._pause()

    def check(self) -> None:
        """Every size is one that the job may have, and no GPU is booked twice."""
        super().check()
        held: set[tuple[str, int]] = set()
        for key, job in self.cluster.jobs.items():
            booking = self.cluster.booking_of(key)
            if booking is None or booking.awaits:
                continue
            least = job.spec.gpus if job.spec.elastic is None else job.spec.elastic.min_gpus
            assert least <= booking.gpus <= job.spec.gpus
            own = {(share.node, gpu) for share in booking.shares if not share.lost for gpu in share.gpus}
            assert not own & held
            held |= own


@pytest.mark.parametrize("seeds", [SHORT, pytest.param(range(500, 600), marks=pytest.mark.long)], ids=["", "long"])
def test_memory_alters_no_verdict_where_jobs_change_their_size(seeds: Sequence[int]) -> None:
    seen: set[str] = set()
    for seed in seeds:
        life = Resizing(seed)
        for _ in range(STEPS):
            life.step()
            life.check()
        life.rest()
        seen |= life.seen
        print(seed, sorted(life.seen))
    assert seen >= {"Grow", "Shrink", "Book", "Keep", "Wait"}


def test_a_node_that_is_free_is_for_an_elastic_job_though_one_before_it_asks_for_as_much() -> None:
    """What that is told is told to both, but the other goes on with fewer GPUs."""
    life = Life(0, *(each for number in (1, 2, 3) for each in plugin_node(f"gpu-{number}")))
    for number in (1, 2, 3):
        life.submit(f"filler-{number}", {"gpus": 8, "priorityClassName": "high", "expectedDuration": "1h"})
    life.decide()
    life.story.run_all()
    whole = {"gpus": 24, "topology": {"gpusPerNode": 8}}
    life.submit("first", {**whole, "priorityClassName": "high"})
    life.submit("elastic", {**whole, "elastic": {"minGPUs": 8}, "expectedDuration": "10m"})
    for _ in range(3):
        life.decide()
    life.story.pass_time(700)
    for _ in range(3):
        life.decide()
    life.story.change_pod("filler-3-a1-worker-00000", phase="Succeeded")
    for _ in range(3):
        life.decide()
    placement = life.story.status("elastic").placement
    assert placement is not None
    assert placement.gpus == 8
