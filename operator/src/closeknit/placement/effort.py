"""What it costs to search a kind of machine, in steps of some 0.35 us, and which kinds of a cluster are not searched.

An agent may claim any graph. How many different sets of GPUs a machine has is known before anything of it is searched;
what their rings take is not, so that they are searched until it is too much. That is a function of the machine alone.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from math import comb, prod
from typing import NamedTuple

from closeknit.machine.graph import Machine
from closeknit.placement.sets import KEPT_SIZES, MANY_SEARCHES
from closeknit.placement.subsets import twins, ways_of

MANY_SETS = 1 << 16  # that are listed, of all sizes: any sixteen GPUs
# Of real machines sixteen GPUs behind switches of which one has lost a link take the most, 2,639,180 steps.
MACHINE_STEPS = 11 << 18  # of one kind of machine, 0.5 to 0.9 s
CLUSTER_STEPS = 1 << 22  # of all kinds of one cluster; the last one may go beyond
VAIN_STEPS = 13 << 18  # of those kinds that turn out to be too dear; the last one may go beyond
# Of a set; of a path in it, where its rings are its own; of a GPU and a NIC in question for it; of a set left over.
SET_STEPS, PATH_STEPS, NIC_STEPS, REST_STEPS = 100, 16, 2, 3


class Taken(NamedTuple):
    """What it took to search a machine."""

    steps: int
    is_all: bool
    """Whether it was searched to the end, and no set of it was cut."""


def listing(machine: Machine) -> int:
    """What all sets of a machine take without their rings, at most; more than MACHINE_STEPS where they are too many."""
    runs = list(twins(machine))
    pools = prod(len(run) + 1 for run in runs)
    if pools > MANY_SETS:
        return MACHINE_STEPS + 1
    every, count = runs, len(machine.gpus)
    sizes = range(1, count + 1)
    per_gpu = NIC_STEPS * (1 + len(machine.nics))
    listed = sum(ways_of(runs, size) * (SET_STEPS + size * per_gpu) for size in sizes)
    if machine.switched and all(machine.switch_links):  # only the number of links of each GPU counts
        runs = [tuple(range(number)) for number in Counter(machine.switch_links).values()]
        pools = prod(len(run) + 1 for run in runs)
    paths = sum(ways_of(runs, size) * size**2 for size in sizes)
    left = sum(
        min(ways_of(every, size) * pools, comb(count, size) << (count - size))
        for size in KEPT_SIZES
        if size <= count and (machine.switched or comb(count, size) <= MANY_SEARCHES)
    )
    return listed + PATH_STEPS * paths + REST_STEPS * left


def too_dear(nodes: Mapping[str, int], listed: Mapping[str, int], taken: Callable[[str], Taken]) -> frozenset[str]:
    """Those topology classes of a cluster that are not searched, from how many nodes have each and what each takes.

    What many nodes have comes first, then what has few sets, and a class that is too dear by itself takes nothing from
    the others' budget, but from one of its own: so that a node that says what no other says costs these nothing.
    """
    left, vain = CLUSTER_STEPS, VAIN_STEPS
    found = set[str]()
    for name in sorted(nodes, key=lambda name: (-nodes[name], listed[name], name)):
        if left <= 0 or vain <= 0 or listed[name] > MACHINE_STEPS:
            found.add(name)
            continue
        steps, is_all = taken(name)
        if is_all:
            left -= steps
        else:
            found.add(name)
            vain -= steps
    return frozenset(found)
