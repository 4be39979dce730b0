"""Tables of what the links of every set tell, beside what one set after the other tells."""

from dataclasses import replace
from math import inf

import pytest

from closeknit.machine.graph import Machine
from closeknit.placement.linked import Linked
from closeknit.placement.subsets import positions_of
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
    linked = Linked(machine, 20.0, pcie_gb_s)
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
