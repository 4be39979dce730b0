"""What the networks between nodes leave of a gang's bandwidth, level by level."""

import pytest

from closeknit.api.nodetopology import Transport
from closeknit.machine.graph import machine
from closeknit.placement.allreduce.bandwidth import EVERY_NIC
from closeknit.placement.allreduce.rings import rings
from closeknit.placement.gang.prediction import LevelCap, level_cap, level_floor, predict, undescribed
from closeknit.placement.gpusets.exhaustive import ExhaustiveSets
from closeknit.placement.gpusets.set_facts import SetFacts
from scenarios.machines import hgx_a100

LEVELS = ("block", "rack", "host")
# Nothing is oversubscribed in a rack; between racks it is two to one, between blocks six to one.
SPEEDS = {"block": 32.0, "rack": 96.0, "host": 192.0}


@pytest.mark.parametrize(
    ("speeds", "counts", "cap"),
    [
        pytest.param(SPEEDS, (1, 1, 2), LevelCap(192, "host"), id="in a rack"),
        pytest.param(SPEEDS, (1, 2, 2), LevelCap(96, "rack"), id="over racks"),
        pytest.param(SPEEDS, (2, 2, 4), LevelCap(32, "block"), id="over blocks"),
        pytest.param({"rack": 96.0}, (1, 1, 2), None, id="a level that is not crossed"),
        pytest.param({"rack": 96.0, "block": 200.0}, (2, 2, 2), LevelCap(96, "rack"), id="the slowest on the way"),
        pytest.param(SPEEDS, (1, 1, 1), None, id="one node"),
    ],
)
def test_the_slowest_described_level_that_is_crossed_is_the_limit(
    speeds: dict[str, float], counts: tuple[int, ...], cap: LevelCap | None
) -> None:
    assert level_cap(LEVELS, speeds, counts) == cap


def test_a_network_inside_a_domain_is_no_slower_than_that_between_domains() -> None:
    assert level_floor(LEVELS, {"block": 32.0, "rack": 96.0}, (1, 1, 2)) == 96
    assert level_floor(LEVELS, {"block": 32.0}, (1, 2, 2)) == 32
    assert level_floor(LEVELS, {"rack": 96.0}, (2, 2, 2)) is None


@pytest.mark.parametrize(
    ("speeds", "counts", "advice"),
    [
        ({}, (1, 2, 2), "network between nodes is not described: set fabric.levelBandwidthGBps in "),
        ({"rack": 96.0}, (1, 1, 2), "network between domains of level host is not described: add host to "),
        ({"host": 96.0}, (2, 2, 2), "network between domains of level block is not described: add block to "),
    ],
)
def test_no_field_is_advised_that_is_set(speeds: dict[str, float], counts: tuple[int, ...], advice: str) -> None:
    assert undescribed(LEVELS, speeds, counts).startswith(advice)


@pytest.mark.parametrize(
    ("cap", "expected"), [(None, 192.0), (LevelCap(96, "rack"), 96.0), (LevelCap(400, "rack"), 192.0)]
)
def test_a_gang_has_what_its_slowest_part_has(cap: LevelCap | None, expected: float) -> None:
    """Eight A100 over NVSwitches plan 240 GB/s of rings and 192 of eight NICs of 200 Gb/s."""
    sets = ExhaustiveSets(SetFacts(machine(hgx_a100()), rings))
    parts = [(name, sets, sets.facts.every, EVERY_NIC) for name in ("n0", "n1")]
    assert predict(parts, Transport.INFINIBAND, cap, None).gb_s == expected
