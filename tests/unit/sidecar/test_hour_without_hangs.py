"""An hour in which nothing hangs, as NCCL's RAS tells of it: checkpoints, compilation, evaluation, and processes that
are stopped for a moment. No rank is named; and one that is stopped for good at the end is.

What RAS says follows what was seen on two H100: a process answers for those that it still reaches, one that was stopped
for two minutes stays dead to the others though it trains, and each answer is that of any process of one Pod.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from closeknit.sidecar import hang as judge
from closeknit.sidecar.hang import Hang, Witness, hang
from closeknit.sidecar.ras import Communicator, RankId, Report

HOUR_S = 3600.0
TICK_S, ASKS = 5.0, 4  # as the sidecar asks
UNRESPONSIVE_AFTER_S = 5.0
DEAD_AFTER_S = 60.0  # 35 s healed, 115 s did not
NAMED_WITHIN_S = 125.0  # 60 s for one that was never called silent before
ON_A_HOST = 8
SIDECAR_LIVES_S = 1200.0  # mostly far longer; what it has heard is lost with it
SEEDS = range(16)


@dataclass
class Gang:
    """Ranks that train by steps, eight to a host, in one communicator of all and one of each half."""

    chance: random.Random
    size: int
    now_s: float = 0.0
    counts: list[int] = field(default_factory=list)
    stopped_at: dict[int, float] = field(default_factory=dict)
    unheard_until: dict[int, float] = field(default_factory=dict)
    """Ranks that were stopped, and until when the others do not hear them again."""
    dead: set[int] = field(default_factory=set)
    """Those that the others never hear again, nor they the others."""

    def __post_init__(self) -> None:
        self.counts = [0] * self.size

    def answer(self) -> Report | None:
        """What any process says; None for one that is stopped."""
        speaker = self.chance.randrange(min(self.size, ON_A_HOST))
        if speaker in self.stopped_at:
            return None
        halves = [range(self.size // 2), range(self.size // 2, self.size)]
        told = [self._told("world", range(self.size), speaker)]
        told += [self._told(f"half {n}", half, speaker) for n, half in enumerate(halves) if len(half) > 1]
        return tuple(told)

    def _told(self, key: str, ranks: range, speaker: int) -> Communicator:
        missing = {each for each in ranks if not self._hears(speaker, each)}
        counts = {_id(each): {"AllReduce": self.counts[each]} for each in ranks if each not in missing}
        return Communicator(key, len(ranks), counts, frozenset(map(_id, missing)))

    def _hears(self, speaker: int, other: int) -> bool:
        if (speaker in self.dead) != (other in self.dead):
            return False
        stopped = self.now_s - self.stopped_at.get(other, self.now_s) >= UNRESPONSIVE_AFTER_S
        return not stopped and self.now_s >= self.unheard_until.get(other, 0.0)

    def stop(self, rank: int) -> None:
        self.stopped_at[rank] = self.now_s

    def go_on(self, rank: int) -> None:
        if self.now_s - self.stopped_at.pop(rank) >= DEAD_AFTER_S:
            self.dead.add(rank)
        else:
            self.unheard_until[rank] = self.now_s + UNRESPONSIVE_AFTER_S

    def step(self) -> None:
        """Every rank calls a collective; one that was behind has caught up."""
        self.counts = [max(self.counts) + 1] * self.size

    def leave_behind(self, rank: int) -> None:
        """The others call a collective, and wait for this one."""
        ahead = max(self.counts) + 1
        self.counts = [count if each == rank else ahead for each, count in enumerate(self.counts)]


def _id(rank: int) -> RankId:
    return RankId(rank, f"10.0.0.{rank // ON_A_HOST}", 100 + rank, rank % ON_A_HOST)


def activities(gang: Gang, chance: random.Random) -> Iterator[float]:
    """What the gang does, one after the other; gives how long each moment of it lasts."""
    step_s = chance.choice([0.4, 3.0, 12.0])
    while True:
        for _ in range(chance.randint(4, 40)):
            gang.step()
            yield step_s * chance.uniform(0.9, 1.3)
        what, rank = chance.choice(["checkpoint", "alone", "compiles", "stopped"]), chance.randrange(gang.size)
        if what == "checkpoint":
            yield chance.uniform(10, 240)
        elif what == "compiles":
            yield chance.uniform(60, 900)
        elif what == "alone":  # it saves, or evaluates, and the others wait for it in a collective
            gang.leave_behind(rank)
            yield chance.uniform(20, 420)
        else:  # a frozen disk, a live migration
            gang.leave_behind(rank)
            gang.stop(rank)
            yield chance.uniform(1, 24)
            gang.go_on(rank)


def lived(seed: int) -> tuple[list[Hang], float | None]:
    """The hangs that are told in an hour without any; and after how long a rank is named that is stopped then."""
    chance = random.Random(seed)  # noqa: S311 - the same each time
    gang, witness = Gang(chance, chance.choice([2, 4, 8, 16])), Witness()
    gang.step()
    gang.dead = {chance.randrange(1, gang.size)} if chance.random() < 0.5 else set()  # it was stopped before, for long
    acts = activities(gang, chance)
    next_s, told = 0.0, list[Hang]()
    while gang.now_s < HOUR_S:
        while next_s <= gang.now_s:
            next_s += next(acts)
        witness = heard(gang, Witness() if chance.random() < TICK_S / SIDECAR_LIVES_S else witness)
        found = hang(witness, gang.now_s)
        told += [found] if found is not None else []
        gang.now_s += TICK_S
    while gang.stopped_at:
        next(acts)
    for _ in range(8):
        gang.step()
        witness = heard(gang, witness)
        gang.now_s += TICK_S
    if gang.dead and gang.size == 2:
        return told, 0.0  # each tells of itself alone, and nothing can be known
    began_s, who = gang.now_s, min({*range(1, gang.size)} - gang.dead)
    gang.stop(who)
    gang.leave_behind(who)
    while gang.now_s - began_s < NAMED_WITHIN_S + TICK_S:
        gang.now_s += TICK_S
        witness = heard(gang, witness)
        found = hang(witness, gang.now_s)
        if found is not None and who in {each.rank for each in found.ranks}:
            return told, gang.now_s - began_s
    return told, None


def heard(gang: Gang, witness: Witness) -> Witness:
    for _ in range(ASKS):
        if (report := gang.answer()) is not None:
            witness = witness.after(report, gang.now_s)
    return witness


@pytest.mark.parametrize("seed", SEEDS)
def test_no_pause_is_a_hang_and_a_hang_is_named(seed: int) -> None:
    told, named_s = lived(seed)
    assert told == []
    assert named_s is not None and named_s <= NAMED_WITHIN_S


@pytest.mark.parametrize(
    ("rule", "value"),
    [("SILENT_FOR_S", 10.0), ("DOUBTED_FOR_S", 30.0), ("BEHIND_FOR_S", 120.0), ("_discredited", None)],
)
def test_the_hour_tells_of_each_rule(rule: str, value: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is weaker names somebody who is well."""
    monkeypatch.setattr(judge, rule, value if value is not None else lambda seen, _: seen)
    if rule == "BEHIND_FOR_S":
        assert isinstance(value, float)
        monkeypatch.setattr(judge.hang, "__defaults__", (value,))
    assert any(lived(seed)[0] for seed in SEEDS)
