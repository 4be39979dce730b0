"""What is kept from one question to the next changes no answer: Tables that have seen all of a life, and fresh ones.

Fleets have every feature at once (tests/scenarios/fleets.py), and jobs ask what others ask but for one thing or two:
whatever a key leaves out is asked for by somebody.
"""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest

from closeknit.cluster.cluster import Cluster
from closeknit.placement.gang import cache
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place, place
from closeknit.placement.refusals.ideal import could_place
from closeknit.placement.spread import cheapest, domain_counts, greedy
from closeknit.placement.suggestions.changes import nearest_changes
from closeknit.placement.values.placement import NoFit, Placement
from closeknit.placement.values.request import Request
from scenarios.clusters import cluster_of, graph, node, wanted
from scenarios.fleets import GROUP, Fleet, Followed, Spec, request_of, spec_by, varied
from scenarios.views import cluster
from unit.lifecycle.writes.test_dranet import two

TURNS, QUESTIONS = 7, 9  # of a life: some 50 questions, for not every job that is thought of can be
SHORT, LONG = 6, 240
Asked = Callable[[Cluster, Request, Tables], object]
# Whether it fits and where, mostly; to look for nearest changes is fifty questions by itself.
WAYS: tuple[Asked, ...] = (*[place] * 24, *[can_place] * 4, *[could_place] * 4, nearest_changes)


RINGS = Tables()._rings


class Fresh(Tables):
    """Tables that know nothing but rings, which take most of the time, and are a function of their key alone."""

    def __init__(self) -> None:
        super().__init__()
        self._rings = RINGS


class Question(NamedTuple):
    """One question of a life."""

    turn: int
    ask: Asked
    spec: Spec
    request: Request


class Life:
    """A fleet and those who ask; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._chance = chance = Random(seed)  # noqa: S311 - a life that can be lived again
        self._learns = seed % 3 == 0
        """Whether machines are learned beforehand, as the operator does while there is nothing to decide."""
        self._fleet = Fleet(chance, {}, nodes=chance.choice((3, 4, 5, 6, 8, 12)))
        self._followed = Followed()
        self._specs = [spec_by(chance), spec_by(chance), {**spec_by(chance), **GROUP}]
        self._before = list(self._specs)
        """Those that were asked last; some are asked again, whatever has happened since."""
        self.asked = self.placed = 0

    def live(self) -> str | None:
        """What is wrong first: an answer that differs, or a Cluster that does; None where nothing is."""
        kept = Fresh()
        for turn in range(TURNS):
            there = self._followed.of(self._fleet.objects)
            if there != (built := cluster(*self._fleet.objects.values())) or there.forest != built.forest:
                return f"turn {turn}: what followed events is not what is there"
            machines = {view.machine.topology_class: view.machine for view in there.nodes.values() if view.machine}
            for machine in machines.values() if self._learns else ():
                kept.learn(machine)
            found: Placement | None = None
            for _ in range(QUESTIONS):
                question = self._question(turn, there)
                if question is None:
                    continue
                answer = question.ask(there, question.request, Fresh())
                if (again := question.ask(there, question.request, kept)) != answer:
                    return f"{question}: {again}, by fresh Tables {answer}"
                if question.ask is place and can_place(there, question.request, kept) != isinstance(answer, Placement):
                    return f"{question}: {answer}, but can_place does not say so"
                self.asked += 1
                if isinstance(answer, Placement):
                    found, self.placed = answer, self.placed + 1
            if self._chance.random() < 0.3:
                self._fleet.join_otherwise()
                continue
            for _ in range(self._chance.choice((1, 1, 2, 4))):
                self._fleet.happen()
            if found is not None and self._chance.random() < 0.4:
                self._fleet.take(found)
        return None

    def _question(self, turn: int, there: Cluster) -> Question | None:
        chance = self._chance
        spec = chance.choice(self._before) if chance.random() < 0.4 else varied(chance.choice(self._specs), chance)
        self._before = [*self._before, spec][-QUESTIONS:]
        if chance.random() < 0.3:
            self._specs = [*self._specs, spec][-3:]
        request, ask = request_of(spec), chance.choice(WAYS)
        if request is None or request.patient_level not in (None, *there.levels):
            return None
        levels = {request.required_level, request.preferred_level} - {None}
        is_unknown = not levels <= set(there.levels)
        if is_unknown and chance.random() < 0.9:
            return None
        if ask is could_place and (is_unknown or request.mig):  # of which nobody asks it
            ask = place
        return Question(turn, ask, spec, request)


def remember_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is soon forgotten."""
    for name, most in {
        "FILLINGS": 3, "FEW_FILLINGS": 3, "STAGES": 3, "OFFERS": 2, "GROUNDS": 2, "FEW_GROUNDS": 2, "SELECTIONS": 1,
        "VERSIONS": 1, "ANSWERS": 2,
    }.items():  # fmt: skip
        monkeypatch.setattr(cache, name, most)
    monkeypatch.setattr(greedy, "MANY_PLANS", 2)
    monkeypatch.setattr(domain_counts, "MANY_MENUS", 4)
    monkeypatch.setattr(domain_counts, "MANY_PAIRS", 1)
    monkeypatch.setattr(cheapest, "MANY_TIMES", 0)
    monkeypatch.setattr(cheapest, "FEW_AREAS", 3)
    monkeypatch.setattr(cheapest, "MANY_COSTS", 2)


def lived(first: int, end: int) -> tuple[int, int]:
    """How many questions were asked in the lives of these seeds, and how many of the answers were placements."""
    asked = placed = 0
    for seed in range(first, end):
        life = Life(seed)
        assert (wrong := life.live()) is None, f"seed {seed}: {wrong}"
        asked, placed = asked + life.asked, placed + life.placed
    return asked, placed


def test_answers_are_those_of_fresh_tables() -> None:
    asked, placed = lived(16, 16 + SHORT)  # of which one ends early if exposures are left out of a search's key
    assert asked > 40 * SHORT
    assert placed > asked // 5


def test_answers_are_those_of_fresh_tables_where_little_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    remember_little(monkeypatch)
    lived(24, 27)


@pytest.mark.long
def test_ten_thousand_answers_are_those_of_fresh_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, _ = lived(1000, 1000 + LONG)
    assert asked > 10_000
    remember_little(monkeypatch)
    lived(2000, 2000 + LONG // 6)


def nodes_of(answer: Placement | NoFit) -> list[str] | str:
    return [share.node for share in answer.shares] if isinstance(answer, Placement) else answer.message


def test_a_search_of_trays_that_nvlink_joins_is_not_that_of_trays_with_rdma() -> None:
    """NVLink joins all four, of which one has no NICs: who may have RDMA alone asks for others than who need not."""
    tray = graph("gb200-tray")
    trays = (node(name, tray, path=("d1",), rdma=name != "a") for name in "abcd")
    there, kept = cluster_of(*trays, levels=("nvlink-domain",), imex=["DRA"]), Tables()
    large, small = (wanted(gpus=gpus, parallelism={"tensor": 8}) for gpus in (16, 8))
    over_rdma = wanted(gpus=8, parallelism={"tensor": 8}, network={"rdma": "Required"})
    assert nodes_of(place(there, large, kept)) == ["a", "b", "c", "d"]
    for request in (small, over_rdma):
        assert nodes_of(place(there, request, kept)) == nodes_of(place(there, request, Tables())) == ["b", "c"]


@pytest.mark.parametrize("functions", ["ab", "cd", "ac", "bd"])
def test_nodes_whose_nics_come_in_two_ways_are_two_searches(functions: str) -> None:
    """Of one kind, and half of them by SR-IOV: as many as the gang needs."""
    whole = graph("hgx-h200")
    ways = {name: "k8s.v1.cni.cncf.io/ib" if name in functions else "rdma/hca" for name in "abcd"}
    nodes = (node(name, whole, path=("r1",), rdma=way) for name, way in ways.items())
    answer = place(cluster_of(*nodes, levels=("rack",)), wanted(gpus=16), Tables())
    assert isinstance(answer, Placement)
    assert [share.rdma_resource for share in answer.shares] == [ways[share.node] for share in answer.shares]
    assert len({share.rdma_resource for share in answer.shares}) == 1


@pytest.mark.parametrize("is_first", [True, False], ids=["before others", "after others"])
def test_whoever_claims_devices_itself_is_given_no_nics_that_are_claimed(*, is_first: bool) -> None:
    """What it asks of nodes is what others ask, but for its own claims."""
    there, kept = cluster(*two()), Tables()
    container = {"name": "trainer", "image": "i"}
    own = {"containers": [container], "resourceClaims": [{"name": "own", "resourceClaimName": "own"}]}
    usual = wanted(gpus=16)
    itself = wanted(gpus=16, template={"spec": own})
    for request in (itself, usual) if is_first else (usual, itself):
        answer = place(there, request, kept)
        assert isinstance(answer, Placement)
        assert bool(answer.shares[0].nics) == (request is usual)
