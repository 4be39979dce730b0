"""What it costs to search a kind of machine, in steps of some 0.25 us, and which kinds of a cluster are not searched.

An agent may claim any graph. How many different sets of GPUs a machine has is known before anything of it is searched;
what their rings take is not, so that they are searched until it is too much. That is a function of the machine alone.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from math import comb, prod
from typing import NamedTuple

from closeknit.machine.graph import Machine
from closeknit.placement.paths import Paths
from closeknit.placement.rings import Rings
from closeknit.placement.sets import KEPT_SIZES, MANY_SEARCHES
from closeknit.placement.subsets import twins, ways_of

MANY_SETS = 1 << 16  # that are listed, of all sizes: any sixteen GPUs
# Of real machines sixteen GPUs behind switches of which one has lost a link take the most, 2,798,445 steps.
MACHINE_STEPS = 11 << 18  # of one kind of machine, 0.5 to 0.9 s
CLUSTER_STEPS = 6 << 20  # of all kinds of one cluster; the last one may go beyond
VAIN_STEPS = 13 << 18  # of those kinds that turn out to be too dear; the last one may go beyond
# Of a set; of a path in it, where its rings are its own; of a GPU and a NIC in question for it; of a set left over.
SET_STEPS, PATH_STEPS, NIC_STEPS, REST_STEPS = 100, 16, 2, 3


class Taken(NamedTuple):
    """What it took to search a machine."""

    listed: int
    """Steps for the lists of its sets."""
    rings: Mapping[bytes, int]
    """Steps for the rings of each set, by the digest of its paths: other machines have the same ones."""
    is_all: bool
    """Whether it was searched to the end, and no set of it was cut."""

    @property
    def steps(self) -> int:
        """All of it, as if no other machine had been searched."""
        return self.listed + sum(self.rings.values())


class Effort:
    """What the rings of one machine take, while they are searched; those of equal sets once."""

    def __init__(self, search: Callable[[Paths], Rings]) -> None:
        """`search` finds the rings of a set."""
        self._search = search
        self._rings: dict[bytes, int] = {}
        self.steps = 0
        """So far."""

    def rings_of(self, paths: Paths) -> Rings:
        """The rings of a set."""
        found, key = self._search(paths), paths.digest()
        if key not in self._rings:
            self._rings[key] = found.steps
            self.steps += found.steps
        return found

    def taken(self, listed: int, *, is_all: bool) -> Taken:
        """What it was in the end. Of a machine that is not searched nothing is shared."""
        return Taken(listed if is_all else listed + self.steps, self._rings if is_all else {}, is_all)


def listing(machine: Machine) -> int:
    """What all sets of a machine take without their rings, at most; more than MACHINE_STEPS where they are too many."""
    every = tuple(sorted(len(run) for run in twins(machine)))
    pools = prod(run + 1 for run in every)
    if pools > MANY_SETS:
        return MACHINE_STEPS + 1
    count, sets = len(machine.gpus), ways_of(every)
    per_gpu = NIC_STEPS * (1 + len(machine.nics))
    listed = sum(sets[size] * (SET_STEPS + size * per_gpu) for size in range(1, count + 1))
    alike = sets
    if machine.switched and all(machine.switch_links):  # only the number of links of each GPU counts
        same = tuple(sorted(Counter(machine.switch_links).values()))
        alike, pools = ways_of(same), prod(run + 1 for run in same)
    paths = sum(number * size**2 for size, number in enumerate(alike))
    left = sum(
        min(sets[size] * pools, comb(count, size) << (count - size))
        for size in KEPT_SIZES
        if size <= count and (machine.switched or comb(count, size) <= MANY_SEARCHES)
    )
    return listed + PATH_STEPS * paths + REST_STEPS * left


def too_dear(nodes: Mapping[str, int], listed: Mapping[str, int], taken: Callable[[str], Taken]) -> frozenset[str]:
    """Those topology classes of a cluster that are not searched, from how many nodes have each and what each takes.

    What many nodes have comes first, then what has few sets. What one of them has in common with another, as two meshes
    with different links down have, counts once. A class that is too dear by itself takes nothing from the others'
    budget, but from one of its own: so that a node that says what no other says costs these nothing.
    """
    left, vain = CLUSTER_STEPS, VAIN_STEPS
    found = set[str]()
    searched = set[bytes]()
    for name in sorted(nodes, key=lambda name: (-nodes[name], listed[name], name)):
        if left <= 0 or vain <= 0 or listed[name] > MACHINE_STEPS:
            found.add(name)
            continue
        kind = taken(name)
        if kind.is_all:
            left -= kind.listed + sum(steps for key, steps in kind.rings.items() if key not in searched)
            searched |= kind.rings.keys()
        else:
            found.add(name)
            vain -= kind.steps
    return frozenset(found)
