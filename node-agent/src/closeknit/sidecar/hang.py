"""Whether a gang hangs, and which rank holds it up: judged from the reports of NCCL's RAS over time. Pure.

What was learnt on two H100 (NCCL 2.28.9) decides the rules:

- Equal counts that stand still are a pause: a checkpoint, a compilation, an evaluation.
- A stopped process does not answer RAS. A process that saves a checkpoint alone, while the others wait for it in the
  next collective, does. So silence is told soon, and a lag only after a deadline.
- RAS never takes back that a process is dead, though both train on. Counts that rise are stronger than its word.
- The network of RAS may break in two. Then each half tells of its own ranks, so answers are put together over time. A
  rank that answers though others call it dead has to be silent for longer: it may be chance that it does not answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from closeknit.sidecar.ras import RankId, Report

# A stopped rank is unresponsive after 5 s, and one that was stopped for 35 s is heard again (measured).
SILENT_FOR_S = 30.0
# Counts of a gang that trains rise every step; a step of the largest models takes some ten seconds.
STILL_FOR_S = 20.0
# Each answer is that of any process of a Pod, of which there are eight as a rule: that four answers every 5 s come from
# others for 30 s has a probability of 4 %, and for 120 s of three in a million.
DOUBTED_FOR_S = 120.0
# Where one rank saves alone, the others wait in a collective, at most as long as PyTorch lets them (its default is
# 10 min). A lag that lasts so long is told before PyTorch ends the ranks.
BEHIND_FOR_S = 480.0
_SEEN_WITHIN_S = 30.0  # an answer older than that says nothing of now
_ONE_LOOK_S = 1.0  # the answers of one look come within milliseconds


@dataclass(frozen=True, slots=True)
class _Seen:
    """One rank of one communicator."""

    counts: Mapping[str, int] = field(default_factory=dict)
    answered_at_s: float | None = None
    """When an answer last had its counts."""
    missing_since_s: float | None = None
    """Since when answers call it unresponsive and none has its counts."""
    is_discredited: bool = False
    """Whether its silence proves nothing: the gang went on without it being heard."""
    is_doubted: bool = False
    """Whether it was called unresponsive and answered all the same: only some may not hear it."""

    def answered(self, counts: Mapping[str, int], at_s: float) -> "_Seen":
        """After an answer that has its counts."""
        is_doubted = self.is_doubted or self.missing_since_s is not None
        return _Seen(counts, at_s, None, self.is_discredited, is_doubted)

    def called_missing(self, at_s: float) -> "_Seen":
        """After an answer that calls it unresponsive."""
        since_s = at_s if self.missing_since_s is None else self.missing_since_s
        is_doubted = self.is_doubted or (self.answered_at_s is not None and at_s - self.answered_at_s < _ONE_LOOK_S)
        return _Seen(self.counts, self.answered_at_s, since_s, self.is_discredited, is_doubted)

    def is_silent(self, at_s: float, still_s: float, behind_for_s: float) -> bool:
        """Whether it has been silent for so long that it has stopped."""
        if self.missing_since_s is None or self.is_discredited:
            return False
        if self.answered_at_s is None:  # it may have been called dead before we listened
            return still_s >= behind_for_s
        return at_s - self.missing_since_s >= (DOUBTED_FOR_S if self.is_doubted else SILENT_FOR_S)


@dataclass(frozen=True, slots=True)
class Witness:
    """What the answers so far have told. `at_s` is any monotonic clock in seconds."""

    seen: Mapping[tuple[str, RankId], _Seen] = field(default_factory=dict)
    """By communicator and rank; no more than the last answers have."""
    rose_at_s: float | None = None
    """When a count of any rank last rose; None before the first collective."""

    def after(self, report: Report, at_s: float) -> "Witness":
        """The witness after one more answer."""
        seen: dict[tuple[str, RankId], _Seen] = {}
        rose_at_s = self.rose_at_s
        for communicator in report:
            key = communicator.key
            for rank, counts in communicator.counts.items():
                before = self.seen.get((key, rank))
                known = {} if before is None else before.counts
                if sum(counts.values()) > sum(known.values()):
                    rose_at_s = at_s
                seen[key, rank] = (before or _Seen()).answered(counts, at_s)
            for rank in communicator.unresponsive:
                before = self.seen.get((key, rank), _Seen())
                seen[key, rank] = before.called_missing(at_s)
        if rose_at_s == at_s:
            seen = {each: _discredited(rank, at_s) for each, rank in seen.items()}
        return Witness(seen, rose_at_s)


def _discredited(rank: _Seen, at_s: float) -> _Seen:
    """Calls that were queued before it fell silent may still be counted; later ones cannot be made without it."""
    is_old = rank.missing_since_s is not None and at_s - rank.missing_since_s >= SILENT_FOR_S
    return replace(rank, is_discredited=True) if is_old else rank


@dataclass(frozen=True, slots=True)
class Hang:
    """A gang that hangs."""

    ranks: tuple[RankId, ...]
    """Who holds it up, by rank of its communicator."""
    is_silent: bool
    """Whether they do not answer; else they have called fewer collectives than those who wait for them."""
    still_s: float
    """How long no rank has called a collective."""


def hang(witness: Witness, at_s: float, behind_for_s: float = BEHIND_FOR_S) -> Hang | None:
    """Whether the gang hangs now. Nothing is said before its first collective."""
    if witness.rose_at_s is None:
        return None
    still_s = at_s - witness.rose_at_s
    if still_s < STILL_FOR_S:
        return None
    silent = {rank for (_, rank), seen in witness.seen.items() if seen.is_silent(at_s, still_s, behind_for_s)}
    if silent:
        return Hang(_ordered(silent), is_silent=True, still_s=still_s)
    if still_s < behind_for_s:
        return None
    late = _late(witness, at_s)
    return Hang(_ordered(late), is_silent=False, still_s=still_s) if late else None


def _late(witness: Witness, at_s: float) -> set[RankId]:
    """Ranks that others wait for, and that wait for no other: one who waits in one communicator is late in the next."""
    heard: dict[str, dict[RankId, Mapping[str, int]]] = {}
    for (key, rank), seen in witness.seen.items():
        if seen.answered_at_s is not None and at_s - seen.answered_at_s < _SEEN_WITHIN_S:
            heard.setdefault(key, {})[rank] = seen.counts
    late: set[tuple[str, int]] = set()
    waiting: set[tuple[str, int]] = set()
    names: dict[tuple[str, int], RankId] = {}
    for ranks in heard.values():
        most = max((sum(counts.values()) for counts in ranks.values()), default=0)
        behind = {rank for rank, counts in ranks.items() if sum(counts.values()) < most}
        names |= {(rank.host, rank.pid): rank for rank in behind}
        late |= {(rank.host, rank.pid) for rank in behind}
        waiting |= {(rank.host, rank.pid) for rank in ranks if behind and rank not in behind}
    return {names[process] for process in (late - waiting or late)}


def _ordered(ranks: set[RankId]) -> tuple[RankId, ...]:
    """One entry for each process, however many communicators name it."""
    found = {(rank.host, rank.pid): rank for rank in sorted(ranks, key=_order, reverse=True)}
    return tuple(sorted(found.values(), key=_order))


def _order(rank: RankId) -> tuple[int, str, int]:
    return rank.rank, rank.host, rank.pid
