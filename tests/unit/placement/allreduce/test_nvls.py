"""What NCCL plans with NVLS, from tables of NCCL 2.30's own search for machines of eighteen links."""

from dataclasses import replace

import pytest

from closeknit.agent.sources.simulated import load_profile
from closeknit.machine.graph import Machine, machine
from closeknit.placement.allreduce.nvls import planned
from scenarios.clusters import graph
from scenarios.machines import published

HOPPER = [102, 204, 306, 408, 425, 408, 476]  # of 2 to 8 GPUs, GB/s
BLACKWELL = [133, 266, 400, 533, 666, 799, 829]


def of(profile: str) -> Machine:
    return machine(published(load_profile(profile), "0"))


@pytest.mark.parametrize(
    ("profile", "table"),
    [
        pytest.param("dgx-h100", HOPPER, id="H100"),
        pytest.param("hgx-h200", HOPPER, id="H200"),
        pytest.param("hgx-b200", BLACKWELL, id="B200"),
    ],
)
def test_it_is_what_nccl_plans(profile: str, table: list[int]) -> None:
    there = of(profile)
    assert [round(planned(there, range(gpus)) or 0) for gpus in range(2, 9)] == table


@pytest.mark.parametrize(
    "there",
    [
        pytest.param(graph("hgx-a100"), id="Ampere"),
        pytest.param(of("hgx-h100-4"), id="no NVSwitch"),
        pytest.param(of("gb200-tray"), id="switches between nodes"),
        pytest.param(replace(graph("hgx-h200"), switch_links=(18,) * 7 + (17,)), id="a link is down"),
        pytest.param(replace(graph("hgx-h200"), switch_links=(1,) * 8), id="too few links for the slowest speed"),
    ],
)
def test_nothing_is_planned_where(there: Machine) -> None:
    assert planned(there, range(len(there.gpus))) is None


def test_one_gpu_has_nothing_to_exchange() -> None:
    assert planned(graph("hgx-h200"), [3]) is None
