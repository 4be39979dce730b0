"""What NVIDIA's device plugin picks: held to what its own code returned, for every free set and every size of four
machines (tests/fixtures/plugin: go-gpuallocator 876e7b7, best-effort policy, asked in index order), and to its rule,
told a second time, where it is asked in another order."""

import json
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from random import Random

import pytest

from closeknit.placement.plugin_pick import Picks, scores
from closeknit.placement.subsets import mask_of, positions_of
from scenarios.clusters import graph
from scenarios.machines import dgx1v

FIXTURES = Path(__file__).parents[2] / "fixtures" / "plugin"
CHOICES = json.loads((FIXTURES / "choices.json").read_text())
LINKS = CHOICES.pop("machines")
CASES = 3264


def pairs(name: str) -> list[list[int]]:
    """The scores that the recorded code had of a machine: PCIe levels as the recording says, and its links."""
    links = LINKS[name]
    count = len(links)

    def level(a: int, b: int) -> int:
        if name != "summit" and a // 2 == b // 2:
            return 50
        return 20 if (a < count // 2) == (b < count // 2) else 10

    return [[0 if a == b else level(a, b) + 100 * links[a][b] for b in range(count)] for a in range(count)]


def test_all_recorded_cases_are_here() -> None:
    assert sum(map(len, CHOICES.values())) == CASES


@pytest.mark.parametrize("name", CHOICES)
def test_the_pick_is_the_recorded_one(name: str) -> None:
    picks = Picks(pairs(name))
    wrong = []
    for case, chosen in CHOICES[name].items():
        pool, count = map(int, case.split(":"))
        foreseen = picks.pick(pool, count)
        assert foreseen is not None
        if list(positions_of(foreseen.first)) != chosen or foreseen.first not in foreseen.all:
            wrong.append((case, chosen, positions_of(foreseen.first)))
    assert wrong == []


def splits(order: tuple[int | None, ...], count: int, padding: int) -> Iterator[list[tuple[int | None, ...]]]:
    """Every split of what is free, in the order in which the plugin comes to it; None is padding."""
    if len(order) == count:
        yield [order]
        return
    for others in combinations(range(1, len(order)), count - 1):
        taken = (order[0], *(order[place] for place in others))
        if taken.count(None) not in (0, padding):
            continue
        rest = tuple(each for place, each in enumerate(order) if place and place not in others)
        for later in splits(rest, count, padding):
            yield [taken, *later]


def told_again(found: Sequence[Sequence[int]], order: Sequence[int], count: int) -> int:
    """The pick by the rule's own words, in this order of the free GPUs."""

    def score(chosen: tuple[int | None, ...]) -> int:
        there = [each for each in chosen if each is not None]
        return sum(found[a][b] for a, b in combinations(there, 2))

    if count == 1:
        return 1 << order[0]
    padding = -len(order) % count
    ways = splits((*order, *[None] * padding), count, padding)
    best = max(ways, key=lambda way: sum(map(score, way)))
    return mask_of(each for each in max(best, key=score) if each is not None)


def test_in_whatever_order_the_plugin_is_asked_its_pick_is_among_those_foreseen() -> None:
    """The kubelet asks in no order. Whatever is foreseen is picked in some order, too."""
    chance = Random(7)  # noqa: S311 - no secret
    for _ in range(30):
        size = chance.randint(2, 6)
        found = [[0] * size for _ in range(size)]
        for a, b in combinations(range(size), 2):
            found[a][b] = found[b][a] = chance.choice((10, 20, 50)) + 100 * chance.choice((0, 0, 1, 2))
        count = chance.randint(1, size)
        foreseen = Picks(found).pick((1 << size) - 1, count)
        assert foreseen is not None
        assert foreseen.first == told_again(found, range(size), count)
        picked = {told_again(found, chance.sample(range(size), size), count) for _ in range(80)}
        assert picked <= foreseen.all
        if len(foreseen.all) <= 3:
            assert picked == foreseen.all


def test_scores_are_of_the_machine_as_its_agent_read_it() -> None:
    found = scores(graph("dgx-1v"))
    assert found is not None
    level = dgx1v().pcie.levels[0].split()[3]
    assert found[0][3] == 200 + {"PIX": 50, "PXB": 40, "PHB": 30, "NODE": 20, "SYS": 10}[level]


@pytest.mark.parametrize("machine", ["hgx-h200", "dgx-2"])
def test_links_into_switches_do_not_count_and_large_machines_are_not_foreseen(machine: str) -> None:
    found = graph(machine)
    known = scores(found)
    assert known is not None
    assert max(map(max, known)) < 100
    assert (Picks(known).pick(3, 2) is None) == (len(found.gpus) > 8)
