"""Branch and bound over the sets of a machine that is too dear to search whole: up to sixteen GPUs, any links.

A job that lies on such a machine alone gets its best set. Links alone bound what the tightest GPU of a set can send,
for all sets. The room for rings at each GPU is counted for the sets that could still win. Rings are searched where that
room is above the best set so far:

    12,870 sets of 8 out of 16, random links:   links of all   room of 1 to 40   rings of 1 to 7

Each question has a budget of steps. What is known already takes as many as what is not, so that equal questions have
equal answers. Where the budget ends, the answer is the best set so far. Shares of gangs over several machines are those
of unsearched.py.
"""

from collections.abc import Iterator, Sequence
from math import inf, nextafter
from typing import NamedTuple

from closeknit.api.nodetopology import Transport
from closeknit.placement.allreduce import constants
from closeknit.placement.allreduce.bandwidth import ASSUMED_SM, EVERY_NIC, NicAccess, Nics, SetBandwidth
from closeknit.placement.allreduce.link_bounds import Direct, LinkBounds
from closeknit.placement.allreduce.tree_bound import MANY_GPUS
from closeknit.placement.gpusets.experts import NO_EXPERTS, Experts
from closeknit.placement.gpusets.masks import mask_of, positions_of
from closeknit.placement.gpusets.set_facts import FactTable, SetFacts
from closeknit.placement.gpusets.set_value import ANY, Measure, SetChoice, SetCriteria, Value, rank, reaches, unblocked
from closeknit.placement.gpusets.unsearched import UnsearchedSets

ASKED_GPUS = 16  # of a machine: so many have 65,535 sets
ASKED_NODES = 8  # of a cluster; each may have other GPUs free, which is another question
# Of all such nodes of a cluster together: the first question on a kind, with every GPU free, 0.4 s, and half as much
# for those that follow from it; and what a question on other GPUs takes beyond that, 25 ms.
WHOLE_STEPS, MORE_STEPS = 3 << 19, 3 << 15
# For the rings of one set, and how often each of its searches may extend one: more of either refutes fewer sets in all.
FEW_STEPS, FEW_TIMES = 1 << 15, 1 << 10
LEARNED_BLOCKS = (1, 2, 4, 8)  # GPUs of a tensor x context group
LAST_TIMES = 4  # so many times of that, while nothing is found that would do at all
ROOM_STEPS = 48  # to count the room of a set, for each two of its GPUs
TREE_STEPS = 6  # to find how trees could use it: three times as much for each GPU


class BestSet(NamedTuple):
    """The best set for a question."""

    value: Value | None
    """None where no set is good enough."""
    mask: int
    searched: frozenset[int]
    """The sets whose rings were searched; one of those that are alike."""
    is_cut: bool
    """Whether the search ended at its budget, so that there may be a better set."""


class BestFirstSets:
    """The sets of a topology class that is searched where a job asks."""

    def __init__(self, facts: SetFacts, among: int) -> None:
        """`among`: how many nodes of the cluster are searched where a job asks."""
        self.facts = facts
        machine = facts.machine
        self._of_shares = UnsearchedSets(facts)
        self._whole_steps, self._more_steps = WHOLE_STEPS // among, MORE_STEPS // among
        self._found = FactTable(self._best_of)
        self._choices = FactTable(self._choice_of)
        self._slowest: dict[int, dict[int, float]] = {}
        """By GPUs of a tensor x context group; it has no more than all sets."""
        self._bits_in_bus_order = [1 << position for position in machine.bus_order]
        sizes = range(1, len(machine.gpus) + 1)
        self._unlearned = [(gpus, block) for block in LEARNED_BLOCKS for gpus in sizes if gpus % block == 0][::-1]
        """(GPUs, GPUs of a group) of the jobs that are left to learn."""
        known = {gpu.compute_capability for gpu in machine.gpus}
        kinds = [ASSUMED_SM if each is None else each[0] * 10 + each[1] for each in known]
        self._link_gb_s = max(map(constants.nvlink_gb_s, kinds))
        pcie_gb_s = [
            max(constants.pcie_gb_s(sm, gpu.pcie_generation, gpu.pcie_width) for sm in kinds) for gpu in machine.gpus
        ]
        # Of one kind of GPU alone: NCCL plans a mixed set for its oldest.
        self._direct = Direct(machine, kinds[0]) if len(kinds) == 1 and not machine.switched else None
        self._linked = LinkBounds(machine, self._link_gb_s, pcie_gb_s)

    def learn(self) -> bool:
        """Works out the answers for one more size of job, which takes up to half a second, the smallest first."""
        if self._unlearned:
            gpus, block = self._unlearned.pop()
            ask, floor = SetCriteria(gpus, block, alone=True), list(ANY)
            for by in Measure:  # in the order of merit
                floor[by] = self.best(self.facts.every, ask, Value(*floor), by) or floor[by]
            self.choose(self.facts.every, self.facts.every, ask, Value(*floor))
        return bool(self._unlearned)

    def bandwidth(self, mask: int, *, alone: bool) -> SetBandwidth | None:
        """Ring bandwidth inside a set that is all of a job; None for a share of it."""
        return self.facts.bandwidth[mask] if alone else None

    def nics(self, mask: int, transport: Transport, access: NicAccess) -> Nics:
        """The NICs of a share of a gang; a job on this set alone uses none."""
        return self._of_shares.nics(mask, transport, access)

    def is_indifferent(self, pool: int, ask: SetCriteria) -> bool:
        """Whether there is nothing to choose."""
        return self._of_shares.is_indifferent(pool, ask)

    def is_foreseen(self, free: int, guessed: tuple[int, ...], unnamed: int, ask: SetCriteria) -> bool:  # noqa: ARG002 - of all alike
        """Never: it would take the values of all sets."""
        return False

    def best(self, pool: int, ask: SetCriteria, floor: Value, by: Measure) -> float | None:
        """The most of one measure among the sets out of `pool`, where a set is all of the job."""
        if not ask.alone:
            return self._of_shares.best(pool, ask, floor, by)
        found = self._best(pool, _without_nics(ask), floor, by).value
        return found[by] if found else None

    def choose(
        self, pool: int, free: int, ask: SetCriteria, floor: Value, experts: Experts = NO_EXPERTS
    ) -> SetChoice | None:
        """The set to take from the free GPUs, where a set is all of the job.

        Expert groups are not looked at, and what later jobs lose are NVLinks.
        """
        if not ask.alone:
            return self._of_shares.choose(pool, free, ask, floor, experts)
        return self._choices[pool, free, _without_nics(ask), floor]

    def _choice_of(self, question: tuple[int, int, SetCriteria, Value]) -> SetChoice | None:
        (pool, free, ask, floor), facts = question, self.facts
        sure, whole = self._best(pool, ask, floor, Measure.TREE), self._best(facts.every, ask, ANY, Measure.BUS)
        if sure.value is None:
            return None
        is_cut = sure.is_cut or self._best(pool, ask, ANY, Measure.BUS).is_cut
        known = sure.searched | whole.searched
        left = self._more(pool)
        for choice in self._least_loss_first(self._able(pool, ask, floor), free):
            if choice.mask == sure.mask:
                return choice._replace(is_cut=is_cut)
            if left <= 0:
                break
            mask, like = choice.mask, facts.alike(choice.mask)
            if facts.is_candidate(mask, ask) and self._has_room(like, floor.bus_gb_s):
                left -= 0 if like in known else self._steps(mask, ask, is_tree=True)
                if reaches(facts.value[mask, ask], floor):
                    return choice._replace(is_cut=is_cut)
            left -= 0 if like in known else ROOM_STEPS * ask.gpus**2
        return self._choice(sure.mask, self._loss_gb_s(sure.mask, free))._replace(is_cut=True)

    def _least_loss_first(self, masks: Sequence[int], free: int) -> Iterator[SetChoice]:
        """The choices in the order of `rank`; few of them are looked at."""
        of_loss: dict[float, list[int]] = {}
        for mask in masks:
            of_loss.setdefault(self._loss_gb_s(mask, free), []).append(mask)
        for loss_gb_s in sorted(of_loss):
            yield from sorted([self._choice(mask, loss_gb_s) for mask in of_loss[loss_gb_s]], key=rank)

    def _choice(self, mask: int, loss_gb_s: float) -> SetChoice:
        return SetChoice(mask, loss_gb_s, *self.facts.fit[mask])

    def _loss_gb_s(self, mask: int, free: int) -> float:
        return self.facts.loss_gb_s(mask, free, self._nvlinks_gb_s)

    def _more(self, pool: int) -> int:
        """The budget of a question after the first one: with every GPU free it comes once, else often."""
        return self._whole_steps // 2 if pool == self.facts.every else self._more_steps

    def _best(self, pool: int, ask: SetCriteria, floor: Value, by: Measure) -> BestSet:
        return self._found[pool, ask, *((floor, by) if ask.block > 1 else unblocked(floor, by))]

    def _best_of(self, question: tuple[int, SetCriteria, Value, Measure]) -> BestSet:
        """Best bound first, until no bound is above the best set."""
        (pool, ask, floor, by), facts = question, self.facts
        is_whole = (pool, floor, by) == (facts.every, ANY, Measure.BUS)
        known = frozenset[int]() if is_whole else self._best(facts.every, ask, ANY, Measure.BUS).searched
        left = self._whole_steps if is_whole else self._more(pool)
        is_tree = by is Measure.TREE or floor.tree_gb_s > 0
        best, best_mask, is_cut, searched, doubted = None, 0, False, set[int](), set[int]()
        before = None if is_whole else _before(ask, floor, by)
        if before is not None:  # what was found for less may do
            found = self._best(pool, ask, *before)
            value = self._worth(found.mask, ask, is_tree=is_tree) if found.value else None
            if value is not None and reaches(value, floor):
                best, best_mask = value, found.mask
        for bound, mask in self._best_first(pool, ask, floor, by):
            if best is not None and best[by] >= bound:
                break
            if left <= 0 and (best is not None or left <= -LAST_TIMES * self._more(pool)):
                is_cut = True
                break
            if not facts.is_candidate(mask, ask):
                continue
            like = facts.alike(mask)
            if like in searched and by is Measure.BUS and ask.block == 1:  # its rings are those of another set
                continue
            left -= 0 if like in known else ROOM_STEPS * ask.gpus**2
            least = floor.bus_gb_s if by is not Measure.BUS else max(floor.bus_gb_s, _above(best))
            if not self._has_room(like, least):
                continue
            value = self._worth(mask, ask, is_tree=is_tree)
            searched.add(like)
            left -= 0 if like in known else self._steps(mask, ask, is_tree=is_tree)
            if facts.bandwidth[mask].is_cut:
                doubted.add(like)
            if value is not None and reaches(value, floor) and (best is None or value[by] > best[by]):
                best, best_mask = value, mask
        is_cut = is_cut or any(self._has_room(like, _above(best)) for like in doubted)
        return BestSet(best, best_mask, frozenset(searched), is_cut)

    def _worth(self, mask: int, ask: SetCriteria, *, is_tree: bool) -> Value | None:
        """The value of a set; without its trees, which cost as much as its rings, where these do not count."""
        if is_tree:
            return self.facts.value[mask, ask]
        value = self.facts.value[mask, ask._replace(alone=False)]
        return value and value._replace(bus_gb_s=min(value.bus_gb_s, self.facts.reached_gb_s(mask)))

    def _best_first(self, pool: int, ask: SetCriteria, floor: Value, by: Measure) -> Iterator[tuple[float, int]]:
        """The sets that may reach a floor, and their bounds: the highest first, of equal ones the most links."""
        of_bound: dict[float, list[int]] = {}
        able = self._able(pool, ask, floor)
        for bound, mask in zip(self._bounds(able, ask, by), able, strict=True):
            of_bound.setdefault(bound, []).append(mask)
        for bound in sorted(of_bound, reverse=True):  # the walk ends early
            for mask in sorted(of_bound[bound], key=self._nvlinks_gb_s, reverse=True):
                yield bound, mask

    def _able(self, pool: int, ask: SetCriteria, floor: Value) -> Sequence[int]:
        """The sets that may reach a floor, by what links alone tell."""
        masks: Sequence[int] = self.facts.of_count(pool, ask.gpus)
        for by in Measure:
            least = floor[by]
            if least > 0 and (by is not Measure.BLOCK or ask.block > 1):
                bounds = self._bounds(masks, ask, by)
                masks = [mask for mask, bound in zip(masks, bounds, strict=True) if bound >= least]
        return masks

    def _bounds(self, masks: Sequence[int], ask: SetCriteria, by: Measure) -> list[float]:
        """An upper limit of a part of each set's value, from its links alone."""
        if by is Measure.BUS:
            sent = self._linked.sent_gb_s
            return [sent[mask] for mask in masks]
        if by is Measure.BLOCK:
            return self._slowest_blocks(masks, ask.block)
        if self.facts.machine.switched:
            return [self.facts.tree_gb_s(mask) for mask in masks]
        if not 1 < ask.gpus <= MANY_GPUS:
            return [0.0] * len(masks)
        link_gb_s, least, ends = self._link_gb_s, self._linked.least, self._linked.ends
        return [link_gb_s * min(least[mask], ends[mask] / 2 / (ask.gpus - 1)) for mask in masks]

    def _slowest_blocks(self, masks: Sequence[int], block: int) -> list[float]:
        """What the tightest GPU of each set can send inside its tensor x context group; each measure asks."""
        sent, in_bus_order = self._linked.sent_gb_s, self._bits_in_bus_order
        known = self._slowest.setdefault(block, {})
        for mask in masks:
            if mask not in known:
                bits = [bit for bit in in_bus_order if mask & bit]
                known[mask] = min([sent[sum(bits[at : at + block])] for at in range(0, len(bits), block)])
        return [known[mask] for mask in masks]

    def _has_room(self, mask: int, gb_s: float) -> bool:
        """Whether a set has room for rings of so much; mostly its NVLinks alone say so, thirty times cheaper."""
        if self._direct is not None and gb_s < inf and self._direct.has_room(positions_of(mask), gb_s):
            return True
        return self.facts.room_gb_s[mask] >= gb_s

    def _steps(self, mask: int, ask: SetCriteria, *, is_tree: bool) -> int:
        """What the value of a set takes, whether it is known or not."""
        masks = [mask, *map(mask_of, self.facts.blocks(mask, ask))]
        rings = sum(self.facts.bandwidth[each].steps for each in masks)
        return rings + (TREE_STEPS * 3**ask.gpus if is_tree and ask.gpus <= MANY_GPUS else 0)

    def _nvlinks_gb_s(self, pool: int) -> float:
        """NVLinks in a pool."""
        ends = self._linked.ends[pool]
        return self._link_gb_s * ends if self.facts.machine.switched else self._link_gb_s * ends / 2


def _without_nics(ask: SetCriteria) -> SetCriteria:
    """A job on this set alone sends nothing over NICs."""
    return ask._replace(transport=None, nics=EVERY_NIC)


def _above(best: Value | None) -> float:
    """The least bus bandwidth above that of a set."""
    return nextafter(best.bus_gb_s if best else 0.0, inf)


def _before(ask: SetCriteria, floor: Value, by: Measure) -> tuple[Value, Measure] | None:
    """The floor and measure of the question that comes before another: its set is the first that may do."""
    if floor.tree_gb_s > 0:
        return floor._replace(tree_gb_s=ANY.tree_gb_s), Measure.TREE
    if by is Measure.TREE:
        return floor._replace(bus_gb_s=ANY.bus_gb_s), Measure.BUS
    if floor.block_gb_s > 0 and ask.block > 1:
        return ANY, Measure.BLOCK
    return (ANY, Measure.BUS) if (floor, by) != (ANY, Measure.BUS) else None
