"""Machines whose links others have published, what each set of their GPUs is worth by two judges, and who chooses.

The tree judge is no part of closeknit: the most that spanning trees over a set's NVLinks can carry (the bound of
Nash-Williams and Tutte, every division of the set into parts tried), in the published GB/s, 10 where NVLinks do not
join the set. The ring judge is what NCCL plans for the set, by closeknit's own model, whose oracle tables are tested.

The published tables have no PCIe. What is added: indexes 2i and 2i + 1 behind one switch, half of the GPUs on each
socket, PCIe 3.0, Intel of 2017. On summit there is no switch, the CPU is a POWER9, and the two NVLinks that join each
GPU to its CPU, which no NodeTopology has, are given as the slot that comes nearest to their 50 GB/s, PCIe 5.0 x16.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from random import Random

from closeknit.machine.graph import Machine, machine
from closeknit.placement.allreduce.bandwidth import set_bandwidth
from closeknit.placement.allreduce.paths import pcie_tree
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import place
from closeknit.placement.values.placement import Placement
from scenarios.clusters import cluster_of, graph, node, wanted
from scenarios.machines import INTEL_2017, spec, tree

DATA = Path(__file__).parent / "data"
UNJOINED_GB_S = 10.0  # of a set by the tree judge: PCIe
# GB/s of one link in the published table, and the GPUs' compute capability.
LINKS = {"dgx-v": (25, "7.0"), "dgx-p": (20, "6.0"), "summit": (25, "7.0"), "pairs-8": (25, "8.6")}
SWITCHED = "hgx-h200"  # the control: behind NVSwitches every set is alike

Chooser = Callable[[int, int], int]
"""(mask of the free GPUs, size) -> mask of the set to take."""


@dataclass(frozen=True)
class Traced:
    """One machine."""

    name: str
    graph: Machine
    worth: Mapping[str, Mapping[int, float]]
    """By judge, of every set of two and more GPUs, in GB/s."""

    @property
    def every(self) -> int:
        """Mask of all GPUs."""
        return (1 << len(self.graph.gpus)) - 1

    def best(self, judge: str, free: int, size: int) -> float:
        """What the best set out of the free GPUs is worth."""
        return max(self.worth[judge][mask] for mask in sets_of(free, size))

    def ideal(self, judge: str, mask: int) -> float:
        """What a set is worth beside the best one of its size on the empty machine: 1 is the best."""
        return self.worth[judge][mask] / _ideal(self.name, judge, mask.bit_count())


@cache
def traced(name: str) -> Traced:
    """A machine of the published tables, or the control."""
    if name == SWITCHED:
        of = graph(name)
        alike = {mask: 1.0 for mask in range(1, 1 << len(of.gpus)) if mask.bit_count() > 1}
        return Traced(name, of, {"tree": alike, "ring": _rings(of)})
    links = _published(name)
    of = _machine(name, links)
    masks = [mask for mask in range(1, 1 << len(links)) if mask.bit_count() > 1]
    return Traced(name, of, {"tree": {mask: _tree(links, mask) for mask in masks}, "ring": _rings(of)})


@cache
def _ideal(name: str, judge: str, size: int) -> float:
    of = traced(name)
    return of.best(judge, of.every, size)


def _published(name: str) -> list[list[int]]:
    table: dict[str, list[list[int]]] = json.loads((DATA / "intranode_topologies.json").read_text())
    return table[name]


def _machine(name: str, links: list[list[int]]) -> Machine:
    count, (link_gb_s, capability) = len(links), LINKS[name]
    is_summit = name == "summit"
    sockets = [position // (count // 2) for position in range(count)]
    switches = list(range(count)) if is_summit else [position // 2 for position in range(count)]
    pairs = combinations(range(count), 2)
    return machine(
        spec(
            count=count,
            product=name,
            capability=capability,
            memory_gib=16,
            sockets=sockets,
            levels=tree(sockets, switches),
            pairs=" ".join(f"{a}-{b}:{links[a][b] // link_gb_s}" for a, b in pairs if links[a][b]),
            pcie=5 if is_summit else 3,
            cpu="POWER9" if is_summit else INTEL_2017,
        )
    )


def _rings(of: Machine) -> dict[int, float]:
    bridges = pcie_tree(of)
    masks = (mask for mask in range(1, 1 << len(of.gpus)) if mask.bit_count() > 1)
    return {mask: set_bandwidth(of, bridges, positions_of(mask)).order_gb_s for mask in masks}


def _tree(links: list[list[int]], mask: int) -> float:
    members = positions_of(mask)
    found = []
    for parts in divisions(list(members)):
        if len(parts) > 1:
            owner = {member: number for number, part in enumerate(parts) for member in part}
            cut = sum(links[a][b] for a, b in combinations(members, 2) if owner[a] != owner[b])
            found.append(cut / (len(parts) - 1))
    return min(found) or UNJOINED_GB_S


def divisions(members: list[int]) -> Iterator[list[list[int]]]:
    """Every way of dividing them into parts."""
    if not members:
        yield []
        return
    first, *rest = members
    for parts in divisions(rest):
        yield [[first], *parts]
        for number, part in enumerate(parts):
            yield [*parts[:number], [first, *part], *parts[number + 1 :]]


def positions_of(mask: int) -> tuple[int, ...]:
    """The positions of a bit mask, ascending."""
    return tuple(position for position in range(mask.bit_length()) if mask >> position & 1)


def sets_of(free: int, size: int) -> Iterator[int]:
    """Every set of so many of the free GPUs."""
    return (sum(1 << position for position in members) for members in combinations(positions_of(free), size))


def ours(of: Traced) -> Chooser:
    """What closeknit places on a cluster of this one machine."""
    tables = Tables()
    tables.learn(of.graph)
    chosen: dict[tuple[int, int], int] = {}

    def choose(free: int, size: int) -> int:
        if (free, size) not in chosen:
            words = (str(position) if free >> position & 1 else "a" for position in range(len(of.graph.gpus)))
            placed = place(cluster_of(node("gpu-0", of.graph, gpus=" ".join(words))), wanted(gpus=size), tables)
            assert isinstance(placed, Placement)
            chosen[free, size] = sum(1 << index for index in placed.shares[0].gpus)
        return chosen[free, size]

    return choose


def go_gpuallocator(name: str) -> Chooser:
    """The recorded choices of NVIDIA's go-gpuallocator."""
    recorded = json.loads((DATA / "gpuallocator_choices.json").read_text())[name]
    return lambda free, size: sum(1 << position for position in recorded[f"{free}:{size}"])


def first_fit(free: int, size: int) -> int:
    """The lowest indexes."""
    return sum(1 << position for position in positions_of(free)[:size])


def at_random(seed: int) -> Chooser:
    """Any of them."""
    random = Random(seed)  # noqa: S311 - the same choices every time
    return lambda free, size: sum(1 << position for position in random.sample(positions_of(free), size))


def summary(ratios: list[float]) -> dict[str, float]:
    """Share at ideal, 5th percentile and mean of what sets are worth beside the ideal."""
    ordered = sorted(ratios)
    return {
        "at_ideal": round(sum(ratio >= 1 - 1e-9 for ratio in ordered) / len(ordered), 4),
        "p5": round(ordered[int(len(ordered) * 0.05)], 4),
        "mean": round(sum(ordered) / len(ordered), 4),
    }
