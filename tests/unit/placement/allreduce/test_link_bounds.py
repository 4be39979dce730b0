"""Tables of what the links of every set tell, beside what one set after the other tells."""

from dataclasses import replace
from itertools import combinations
from math import inf, nextafter

import pytest

from closeknit.machine.graph import Machine
from closeknit.placement.allreduce.bandwidth import most_bandwidth
from closeknit.placement.allreduce.link_bounds import Direct, LinkBounds
from closeknit.placement.allreduce.paths import pcie_tree
from closeknit.placement.gpusets.masks import positions_of
from scenarios.clusters import graph
from scenarios.irregular import irregular

MACHINES = {
    "thirteen any": irregular(5, 13),
    "five any": irregular(2, 5),
    "dgx-1v": graph("dgx-1v"),
    "as many links as there can be": replace(
        irregular(0, 4), links=((0, 36, 36, 36), (36, 0, 36, 36), (36, 36, 0, 36), (36, 36, 36, 0))
    ),
    "switched, one out": replace(graph("a100x4"), switch_links=(0, 12, 12, 11)),
}


@pytest.mark.parametrize("name", MACHINES)
def test_every_set_has_what_its_gpus_share(name: str) -> None:
    machine = MACHINES[name]
    pcie_gb_s = [12.0, 6.0, *[12.0] * (len(machine.gpus) - 2)]
    linked = LinkBounds(machine, 20.0, pcie_gb_s)
    assert linked.ends[0] == 0
    for mask in range(1, 1 << len(machine.gpus)):
        at = positions_of(mask)
        links = [_links(machine, position, at) for position in at]
        assert linked.ends[mask] == sum(links)
        assert linked.least[mask] == min(links)
        sent = [20.0 * each + pcie_gb_s[position] for each, position in zip(links, at, strict=True)]
        assert linked.sent_gb_s[mask] == (min(sent) if len(at) > 1 else inf)


def _links(machine: Machine, position: int, at: tuple[int, ...]) -> int:
    if machine.switched:
        return machine.switch_links[position]
    return sum(machine.links[position][other] for other in at)


@pytest.mark.parametrize("name", ["thirteen any", "dgx-1v"])
def test_nvlinks_alone_have_room_for_no_more_than_all_links(name: str) -> None:
    machine = MACHINES[name]
    direct, tree, told = Direct(machine, 70), pcie_tree(machine), 0
    sets = [at for gpus in (2, 5, 8) for at in combinations(range(len(machine.gpus)), gpus)][::7]
    for at in sets:
        room = most_bandwidth(machine, tree, at)
        assert not direct.has_room(at, nextafter(room, inf))
        told += direct.has_room(at, room)  # mostly so where the set is a good one
    assert told > 0
