"""Blips and deaths of any node of a gang, also of the one whose sidecar hears the others."""

import random
from math import inf

import pytest

from closeknit.api.trainingjob_status import State
from scenarios.outages import Outage, Outages, blips, gang
from scenarios.story import Story

NODES = ("gpu-1", "gpu-2", "gpu-3", "gpu-4")


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - the same each time


def booked(story: Story) -> list[str]:
    placement = story.status().placement
    return [] if placement is None else [each.name for each in placement.nodes]


@pytest.mark.parametrize("seed", range(40))
def test_no_blip_of_any_kubelet_ends_a_gang_whose_ranks_train_on(seed: int) -> None:
    story = gang(4, spare=2)
    lives = Outages(story, seeded(seed), blips(seed, NODES))
    story.written.clear()
    lives.advance(360)
    assert story.status().attempts == []
    assert (story.status().state, story.status().restarts) == (State.RUNNING, 0)
    assert story.written == [], "a blip is no news"


@pytest.mark.parametrize("fails_s", [inf, 1.0, 15.0], ids=["the others hang", "fail at once", "fail later"])
@pytest.mark.parametrize("node", NODES)
def test_the_death_of_any_node_is_known_within_25_s(node: str, fails_s: float) -> None:
    took = []
    for seed in range(4):
        story = gang(4, spare=2)
        died_s = 30 + seeded(seed).uniform(0, 10)
        lives = Outages(story, seeded(seed), (Outage(node, died_s, inf, False, fails_s),))
        while not story.status().attempts and lives.now_s < died_s + 100:
            lives.advance(lives.now_s + 1)
        took.append(lives.now_s - died_s)
        (end,) = story.status().attempts
        assert (end.reason, end.charged) == ("NodeLost", False)
        assert end.phases is not None and end.phases.detect == "20s", "since its last sign of life"
    assert max(took) < 26


def test_two_nodes_that_die_together_are_found_though_one_of_them_hears_the_others() -> None:
    story = gang(4, spare=2)
    dead = tuple(Outage(node, 30, ranks_go_on=False) for node in (booked(story)[0], booked(story)[2]))
    lives = Outages(story, seeded(1), dead)
    lives.advance(70)
    assert story.status().attempts and not story.status().attempts[0].charged
    assert booked(story) and not {*booked(story)} & {each.node for each in dead}
