"""What one machine, and all machines of a cluster, may cost a decision, whatever their agents say of them."""

from dataclasses import replace
from random import Random

import pytest

from closeknit.api.nodetopology import NodeTopologySpec
from closeknit.cluster.cluster import Cluster
from closeknit.machine.graph import Machine, machine
from closeknit.placement import effort
from closeknit.placement.bandwidth import set_bandwidth
from closeknit.placement.effort import CLUSTER_STEPS, MACHINE_STEPS, steps, too_dear
from closeknit.placement.paths import Paths, pcie_tree
from closeknit.placement.place import place
from closeknit.placement.placement import NoFit, Placement
from closeknit.placement.request import Request
from closeknit.placement.rings import SET_STEPS, Rings, rings
from closeknit.placement.sets import Sets
from closeknit.placement.tables import Tables
from scenarios.clusters import cluster_of, graph, node, wanted
from scenarios.machines import MACHINES

FULL = 20  # of so many machines one is asked for any number of GPUs, the others for a few: seconds, and milliseconds
LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS")


def random_machine(seed: int, count: int, chance: float) -> Machine:
    """A graph that no factory has made: any links, any PCIe levels, any NUMA nodes, or any links into switches."""
    random = Random(seed)  # noqa: S311
    switched = random.random() < 0.2
    levels = [["X"] * count for _ in range(count)]
    for a in range(count):
        for b in range(a):
            levels[a][b] = levels[b][a] = random.choice(LEVELS)
    pairs = [
        {"a": a, "b": b, "links": random.randint(1, 18)}
        for b in range(count)
        for a in range(b)
        if not switched and random.random() < chance
    ]
    nics = [
        {"name": f"mlx5_{number}", "pciAddress": f"0001:{number:02x}:00.0", "transport": "InfiniBand",
         "state": "Active", "rateGbps": 400, "gpuLevels": random.choices(LEVELS, k=count)}
        for number in range(random.choice([0, 0, 1, 8, 64]))
    ]  # fmt: skip
    return machine(
        NodeTopologySpec.parse(
            {
                "source": {"method": "NVML"},
                "gpus": [
                    {"index": index, "uuid": f"GPU-{seed}-{index}", "pciAddress": f"0000:{index:02x}:00.0",
                     "product": "Liar", "computeCapability": random.choice(["7.0", "9.0"]),
                     "numaNode": random.randint(0, 7)}
                    for index in range(count)
                ],
                "nvlink": {
                    "switched": switched,
                    "pairs": pairs,
                    "linksPerGPU": [random.randint(0, 18) for _ in range(count)] if switched else [],
                },
                "pcie": {"levels": [" ".join(row) for row in levels]},
                "nics": nics,
            }
        )
    )  # fmt: skip


def random_situation(seed: int) -> tuple[Cluster, Request]:
    random = Random(seed)  # noqa: S311
    count = random.randint(1, 64)
    view = node("gpu-0", random_machine(seed, count, random.random()), path=("r1",))
    group = random.choice([1, 1, 2, 4])
    gpus = max(1, random.randint(1, count if seed % FULL == 0 else min(count, 3)) // group) * group
    nvlink = random.choice(["Required", "Preferred", "Ignored"])
    job = wanted(gpus=gpus, parallelism={"tensor": group}, topology={"nvlink": nvlink})
    return cluster_of(view, levels=("rack",)), job


class Counting(Tables):
    """Tables that count what is searched."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self.taken = 0

    def _rings_of(self, paths: Paths) -> Rings:
        found = super()._rings_of(paths)
        self.most = max(self.most, found.steps)
        self.taken += len(paths.between) ** 2
        return found


def check(seed: int) -> None:
    cluster, job = random_situation(seed)
    tables = Counting()
    answer = place(cluster, job, tables)
    assert place(cluster, job, Tables()) == answer
    assert tables.most <= SET_STEPS + 64  # of the last step all ways onwards are looked at
    assert tables.taken <= MACHINE_STEPS


@pytest.mark.parametrize("first", range(1, 201, 50))
def test_no_machine_takes_more_than_its_budget_and_equal_questions_have_equal_answers(first: int) -> None:
    for seed in range(first, first + 50):
        check(seed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(1_001, 11_001, 100))
def test_nor_do_ten_thousand_machines(first: int) -> None:
    for seed in range(first, first + 100):
        check(seed)


def degraded(name: str) -> list[Machine]:
    """A real machine as it is, with a link of one GPU down, and, of eight, with one GPU out of the fabric."""
    whole = graph(name)
    links = whole.switch_links
    if not whole.switched:
        return [whole]
    return [
        whole,
        *(
            replace(whole, switch_links=(left, *links[1:]))
            for left in ((links[0] - 1, 0) if len(links) <= 8 else (links[0] - 1,))
        ),
    ]


@pytest.mark.parametrize("name", MACHINES)
def test_no_real_machine_comes_near_its_budget(name: str) -> None:
    found: list[Rings] = []

    def search(paths: Paths) -> Rings:
        found.append(rings(paths))
        return found[-1]

    for real in degraded(name):
        assert steps(real) <= 0.6 * MACHINE_STEPS
        sets = Sets(real, search)
        for size in range(2, len(real.gpus) + 1):
            for mask in sets.of_count(sets.every, size):
                assert not sets.bandwidth(mask).is_cut
    assert max((entry.steps for entry in found), default=0) < SET_STEPS


def test_a_machine_of_random_links_gets_its_gpus_placed_at_once_and_the_placement_says_so() -> None:
    dear = random_machine(7, 16, 0.5)
    cluster = cluster_of(node("gpu-0", dear, path=("r1",)), levels=("rack",))
    tables = Counting()
    answer = place(cluster, wanted(gpus=8), tables)
    assert isinstance(answer, Placement)
    assert answer.ended_at_budget
    assert answer.predicted_bus_bandwidth_gb_s is None
    assert answer.limited_by == "the GPUs of gpu-0 are joined in too many ways to be searched"
    assert tables.taken == 0


def test_a_liar_is_taken_last_and_costs_an_honest_node_nothing() -> None:
    nodes = [node("gpu-0", random_machine(7, 16, 0.5), path=("r1",)), node("gpu-1", graph("dgx-1v"), path=("r1",))]
    answer = place(cluster_of(*nodes, levels=("rack",)), wanted(gpus=4), Tables())
    assert isinstance(answer, Placement)
    assert [share.node for share in answer.shares] == ["gpu-1"]
    assert not answer.ended_at_budget


def test_rings_of_many_gpus_stay_within_pythons_stack() -> None:
    count = 64
    mesh = replace(random_machine(1, count, 1.0), switched=False, links=tuple(
        tuple(0 if a == b else 36 for b in range(count)) for a in range(count)
    ))  # fmt: skip
    assert set_bandwidth(mesh, pcie_tree(mesh), tuple(range(count))).order_gb_s > 0


def test_the_many_go_before_the_one_that_differs() -> None:
    taken = {"honest": MACHINE_STEPS, "a-liar": MACHINE_STEPS, "b-liar": MACHINE_STEPS, "cheap": 1}
    assert 2 * MACHINE_STEPS == CLUSTER_STEPS
    assert too_dear({"a-liar": 1, "b-liar": 1, "cheap": 1, "honest": 40}, taken) == {"b-liar", "cheap"}
    assert too_dear({"dear": 40}, {"dear": MACHINE_STEPS + 1}) == {"dear"}


def test_a_cluster_of_different_machines_has_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "CLUSTER_STEPS", 1_500)  # two machines of four GPUs
    views = [node(f"gpu-{seed}", random_machine(seed, 4, 0.9), path=("r1",)) for seed in range(6)]
    cluster = cluster_of(*views, levels=("rack",))
    tables = Counting()
    answer = place(cluster, wanted(gpus=2), tables)
    assert not isinstance(answer, NoFit)
    assert sum(steps(view.machine) for view in views if view.machine) > effort.CLUSTER_STEPS
    assert 0 < tables.taken <= effort.CLUSTER_STEPS
    assert place(cluster, wanted(gpus=2), Tables()) == answer
