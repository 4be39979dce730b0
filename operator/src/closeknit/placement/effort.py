"""What it costs to search a kind of machine, in steps, before anything of it is searched.

An agent may claim any graph. Everything that placement works out of a machine is worked out for sets of its GPUs, so
that what a machine may cost follows from how many different sets of one size it has.
"""

from collections import Counter
from collections.abc import Mapping
from math import prod

from closeknit.machine.graph import Machine
from closeknit.placement.subsets import twins, ways_of

# A step is one path between two GPUs of one set. Of real machines sixteen GPUs behind switches of which one has lost
# its fabric take the most, 605,070 steps; a mesh of eight GPUs takes 36,864.
MANY_SETS = 1 << 16  # that are listed, of all sizes: any sixteen GPUs
MACHINE_STEPS = 1 << 20  # of one kind of machine: eleven GPUs in any graph
CLUSTER_STEPS = 1 << 21  # of all kinds of one cluster: 56 different meshes of eight GPUs
DIRECT_WEIGHT = 8  # hardly two sets of a graph of direct links have equal rings, so that each is searched


def steps(machine: Machine) -> int:
    """What all sets of a machine take together, at most; beyond MACHINE_STEPS no more than that it is beyond."""
    runs = list(twins(machine))
    if prod(len(run) + 1 for run in runs) > MANY_SETS:
        return MACHINE_STEPS + 1
    if machine.switched and all(machine.switch_links):  # only the number of links of each GPU counts
        runs = [tuple(range(number)) for number in Counter(machine.switch_links).values()]
    sizes = range(1, len(machine.gpus) + 1)
    is_direct = not machine.switched and any(map(any, machine.links))
    return sum(ways_of(runs, size) * size**2 for size in sizes) * (DIRECT_WEIGHT if is_direct else 1)


def too_dear(nodes: Mapping[str, int], taken: Mapping[str, int]) -> frozenset[str]:
    """Those topology classes of a cluster that are not searched, from how many nodes have each and the steps it takes.

    What many nodes have comes first, so that a node that says what no other says takes nothing from them.
    """
    left = CLUSTER_STEPS
    found = set[str]()
    for name in sorted(nodes, key=lambda name: (-nodes[name], name)):
        if taken[name] > min(left, MACHINE_STEPS):
            found.add(name)
        else:
            left -= taken[name]
    return frozenset(found)
