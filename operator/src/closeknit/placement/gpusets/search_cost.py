"""What it costs to search a kind of machine, in steps of some 0.25 us, and which kinds of a cluster are not searched.

An agent may claim any graph. How many different sets of GPUs a machine has is known before anything of it is searched;
what their rings take is not, so that they are searched until it is too much. That is a function of the machine alone.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from math import comb, prod

from closeknit.machine.graph import Machine
from closeknit.placement.allreduce.bandwidth import SetBandwidth
from closeknit.placement.allreduce.paths import Paths
from closeknit.placement.allreduce.rings import Rings
from closeknit.placement.gpusets.exhaustive import LATER_SIZES, MANY_SEARCHES, ExhaustiveSets
from closeknit.placement.gpusets.masks import set_counts, twins
from closeknit.placement.gpusets.set_facts import SetFacts

MANY_SETS = 1 << 16  # that are listed, of all sizes: any sixteen GPUs
# The most of a real machine is 2,798,445 steps: sixteen GPUs behind switches, and one has lost a link.
MACHINE_STEPS = 11 << 18  # of one kind of machine, 0.5 to 0.9 s
# Of these for its rings: a DGX-1V with two GPUs out of the mesh takes 1,126,773.
RING_STEPS = 5 << 18
CLUSTER_STEPS = 37 << 18  # of all kinds of one cluster, 2.4 s; the last one may go beyond
FIRST_STEPS = 1 << 14  # that each node brings its kind at first, doubled until all kinds are searched or too dear
# Of a set; of a path in it, where its rings are its own; of a GPU and a NIC in question for it; of a set left over.
SET_STEPS, PATH_STEPS, NIC_STEPS, REST_STEPS = 100, 16, 2, 3


class SearchCost:
    """The search of one machine's rings, and its cost so far. It goes on where it stopped; equal sets count once."""

    def __init__(self, machine: Machine, listed: int, search: Callable[[Paths], Rings]) -> None:
        """`listed`: the steps that `listing` gives for the machine; `search` finds the rings of a set."""
        self.listed = listed
        """Steps for the lists of its sets."""
        self.sets = ExhaustiveSets(SetFacts(machine, self._rings_of))
        """What was found; complete where `is_all`."""
        self.rings: list[tuple[bytes, int]] = []
        """Steps for the rings of each set, in the order of the search, by the digest of its paths."""
        self.is_all = False
        """Whether it was searched to the end, no set of it was cut, and it did not take too much."""
        self._search = search
        self._seen = set[bytes]()
        self._left = _all_rings(self.sets.facts)
        self._sums: list[int] = []
        self._is_over = listed > MACHINE_STEPS

    @property
    def steps(self) -> int:
        """So far, as if no other machine had been searched."""
        return self.listed + (self._sums[-1] if self._sums else 0)

    def searched(self, most: int) -> tuple[int, bool]:
        """How many of `rings` are searched with so many steps, the one that goes beyond them included, and whether
        there is nothing more to search then; both as if it had not been searched before."""
        limit = min(MACHINE_STEPS, self.listed + RING_STEPS)
        within = min(most, limit) - self.listed
        while not self._is_over and (not self._sums or self._sums[-1] <= within):
            found = next(self._left, None)
            self.is_all = found is None
            self._is_over = found is None or found.is_cut or self.steps > limit
            if self._is_over and not self.is_all:
                self.sets, self._left = ExhaustiveSets(SetFacts(self.sets.facts.machine, self._search)), iter(())
        number = min(len(self._sums), bisect_right(self._sums, within) + 1)
        is_within = not self._sums or self._sums[-1] <= within
        return number, self._is_over and number == len(self._sums) and (is_within or not self.is_all)

    def _rings_of(self, paths: Paths) -> Rings:
        found, key = self._search(paths), paths.digest()
        if key not in self._seen:
            self._seen.add(key)
            self.rings.append((key, found.steps))
            self._sums.append(found.steps + (self._sums[-1] if self._sums else 0))
        return found


def _all_rings(facts: SetFacts) -> Iterator[SetBandwidth]:
    """Ring bandwidth of every set, the largest first; of sets that are alike that of one."""
    for size in range(len(facts.machine.gpus), 1, -1):
        for like in dict.fromkeys(map(facts.alike, facts.of_count(facts.every, size))):
            yield facts.bandwidth[like]


def listing(machine: Machine) -> int:
    """What all sets of a machine take without their rings, at most; more than MACHINE_STEPS where they are too many."""
    every = tuple(sorted(len(run) for run in twins(machine)))
    pools = prod(run + 1 for run in every)
    if pools > MANY_SETS:
        return MACHINE_STEPS + 1
    count, sets = len(machine.gpus), set_counts(every)
    per_gpu = NIC_STEPS * (1 + len(machine.nics))
    listed = sum(sets[size] * (SET_STEPS + size * per_gpu) for size in range(1, count + 1))
    alike = sets
    if machine.switched and all(machine.switch_links):  # only the number of links of each GPU counts
        same = tuple(sorted(Counter(machine.switch_links).values()))
        alike, pools = set_counts(same), prod(run + 1 for run in same)
    paths = sum(number * size**2 for size, number in enumerate(alike))
    left = sum(
        min(sets[size] * pools, comb(count, size) << (count - size))
        for size in LATER_SIZES
        if size <= count and (machine.switched or comb(count, size) <= MANY_SEARCHES)
    )
    return listed + PATH_STEPS * paths + REST_STEPS * left


def too_dear(nodes: Mapping[str, int], effort_of: Callable[[str], SearchCost]) -> frozenset[str]:
    """Those topology classes of a cluster that are not searched, from how many nodes have each.

    All are searched at once, in rounds: each node brings its class so many steps, and in the next round twice as many,
    until the steps of the cluster are spent. So what takes little is searched before anything takes much, and what many
    nodes have may take more. A claimed graph that is too dear costs the others no more than they take themselves. Once
    half of the steps is spent, the classes take the other half one after another, so that some of very many are
    searched. What one class has in common with another, as two meshes with different links down have, counts once.
    """
    left, each = CLUSTER_STEPS, FIRST_STEPS
    efforts = {name: effort_of(name) for name in nodes}
    found = {name for name, effort in efforts.items() if effort.listed > MACHINE_STEPS}
    waiting = sorted(nodes.keys() - found, key=lambda name: (-nodes[name], efforts[name].listed, name))
    charged = dict.fromkeys(waiting, 0)
    searched, over = set[bytes](), set[str]()
    while waiting and left > 0:
        is_last = left <= CLUSTER_STEPS // 2
        spare = 0 if is_last else CLUSTER_STEPS // 2
        for name in waiting:
            effort, most = efforts[name], MACHINE_STEPS if is_last else each * nodes[name]
            if effort.listed > most or left <= spare:
                continue
            before = charged[name]
            charged[name], is_over = effort.searched(most)
            for key, steps in effort.rings[before : charged[name]]:
                left -= 0 if key in searched else steps
                searched.add(key)
            if is_over:
                over.add(name)
                left -= effort.listed if effort.is_all else 0
        waiting = [name for name in waiting if name not in over]
        each *= 2
    return frozenset(found.union(waiting, (name for name in over if not efforts[name].is_all)))
