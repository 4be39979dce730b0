"""What one machine, and all machines of a cluster, may cost a decision, whatever their agents say of them."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

import pytest

from closeknit.api.nodetopology import NodeTopologySpec
from closeknit.cluster.cluster import Cluster
from closeknit.machine.graph import Machine, machine
from closeknit.placement.allreduce.paths import Paths
from closeknit.placement.allreduce.rings import SET_STEPS, Rings, rings
from closeknit.placement.gang.cache import Tables
from closeknit.placement.gpusets import search_cost
from closeknit.placement.gpusets.best_first import WHOLE_STEPS
from closeknit.placement.gpusets.search_cost import CLUSTER_STEPS, FIRST_STEPS, MACHINE_STEPS, SearchCost, too_dear
from closeknit.placement.place import place
from closeknit.placement.values.placement import NoFit, Placement
from closeknit.placement.values.request import Request
from scenarios.clusters import cluster_of, graph, node, wanted
from scenarios.machines import MACHINES

FULL = 20  # of so many machines one is asked for any number of GPUs, the others for a few: seconds, and milliseconds
DIFFERENT = 500  # machines of one cluster
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
    """Tables that count what is searched, and not found in them."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self.taken = 0

    def _rings_within(self, paths: Paths, most_steps: int, times: int) -> Rings:
        is_known = self._rings.get((paths.digest(), most_steps, times)) is not None
        found = super()._rings_within(paths, most_steps, times)
        self.most = max(self.most, found.steps)
        self.taken += 0 if is_known else found.steps
        return found


def check(seed: int) -> None:
    cluster, job = random_situation(seed)
    tables = Counting()
    answer = place(cluster, job, tables)
    assert place(cluster, job, Tables()) == answer
    assert tables.most <= 2 * SET_STEPS  # the last step may go beyond
    assert tables.taken <= MACHINE_STEPS + 2 * WHOLE_STEPS + 4 * SET_STEPS


@pytest.mark.parametrize("first", range(1, 151, 50))
def test_no_machine_takes_more_than_its_budget_and_equal_questions_have_equal_answers(first: int) -> None:
    for seed in range(first, first + 50):
        check(seed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(1_001, 11_001, 100))
def test_nor_do_ten_thousand_machines(first: int) -> None:
    for seed in range(first, first + 100):
        check(seed)


def without_links(real: Machine, gpu: int, other: int | None) -> Machine:
    """A machine with one link less between two GPUs or into the switches, or, with no other, with none of a GPU."""
    one = int(other is not None)
    if real.switched:
        left = real.switch_links[gpu] - 1 if one else 0
        links = tuple(left if number == gpu else each for number, each in enumerate(real.switch_links))
        return replace(real, switch_links=links, topology_class=f"{real.topology_class}-{one}")
    pairs = tuple(
        tuple(
            (each - 1 if one else 0) if gpu in (a, b) and other in (None, a, b) else each for b, each in enumerate(row)
        )
        for a, row in enumerate(real.links)
    )
    return replace(real, links=pairs, topology_class=f"{real.topology_class}-{one}")


def degraded(name: str) -> list[Machine]:
    """A real machine as it is, with a link of one GPU down, and with one GPU out of the fabric."""
    whole = graph(name)
    if whole.switched:
        return [whole, without_links(whole, 0, 1), without_links(whole, 0, None)]
    peer = next((other for other, links in enumerate(whole.links[0]) if links), None)
    return [whole, *([without_links(whole, 0, peer), without_links(whole, 0, None)] if peer is not None else [])]


class Cut(Tables):
    """Tables that see whether the rings of any set were cut."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[int] = []

    def _rings_of(self, paths: Paths) -> Rings:
        found = super()._rings_of(paths)
        self.steps.append(found.steps)
        return found


@pytest.mark.parametrize("name", MACHINES)
def test_real_machines_are_searched_with_links_and_gpus_that_are_down(name: str) -> None:
    for real in degraded(name):
        tables = Cut()
        job = wanted(gpus=len(real.gpus) // 2, topology={"nvlink": "Required" if real.switched else "Preferred"})
        answer = place(cluster_of(node("gpu-0", real, path=("r1",)), levels=("rack",)), job, tables)
        assert isinstance(answer, Placement)
        assert not answer.ended_at_budget
        assert max(tables.steps, default=0) < SET_STEPS


def test_sixteen_gpus_of_which_one_has_lost_its_fabric_are_placed_on_the_others() -> None:
    broken = without_links(graph("dgx-2"), 0, None)
    cluster = cluster_of(node("gpu-0", broken, path=("r1",)), levels=("rack",))
    answer = place(cluster, wanted(gpus=8, topology={"nvlink": "Required"}), Tables())
    assert isinstance(answer, Placement)
    assert answer.shares[0].gpus == tuple(range(8, 16)), "of one socket"
    assert answer.predicted_bus_bandwidth_gb_s == 120
    assert not answer.ended_at_budget


def test_a_machine_of_random_links_gets_its_gpus_placed_at_once_and_the_placement_says_so() -> None:
    dear = random_machine(7, 17, 0.5)
    cluster = cluster_of(node("gpu-0", dear, path=("r1",)), levels=("rack",))
    tables = Counting()
    answer = place(cluster, wanted(gpus=8), tables)
    assert isinstance(answer, Placement)
    assert answer.ended_at_budget
    assert answer.predicted_bus_bandwidth_gb_s is None
    assert (
        answer.limited_by
        == "nothing is predicted for gpu-0: the cluster's machines join their GPUs in more ways than are searched"
    )
    assert tables.taken == 0


def test_a_liar_is_taken_last_and_costs_an_honest_node_nothing() -> None:
    nodes = [node("gpu-0", random_machine(7, 17, 0.5), path=("r1",)), node("gpu-1", graph("dgx-1v"), path=("r1",))]
    answer = place(cluster_of(*nodes, levels=("rack",)), wanted(gpus=4), Tables())
    assert isinstance(answer, Placement)
    assert [share.node for share in answer.shares] == ["gpu-1"]
    assert not answer.ended_at_budget


def test_liars_cost_an_honest_node_nothing() -> None:
    liars = [random_machine(seed, 7, 1.0) for seed in (4, 8, 4, 8, 4, 8)]  # six agents
    nodes = [node(f"gpu-{number}", each, path=("r1",)) for number, each in enumerate([*liars, graph("hgx-h200")])]
    tables = Tables()
    topology = {"nvlink": "Required", "minBusBandwidthGBps": 100}
    answer = place(cluster_of(*nodes, levels=("rack",)), wanted(gpus=8, topology=topology), tables)
    assert not any(tables.effort_of(liar).is_all for liar in liars)
    assert isinstance(answer, Placement)
    assert [share.node for share in answer.shares] == ["gpu-6"]
    assert answer.predicted_bus_bandwidth_gb_s == 358.9


def efforts(monkeypatch: pytest.MonkeyPatch, **kinds: tuple[int, list[tuple[str, int]]]) -> dict[str, SearchCost]:
    """Kinds that take so many steps for their lists, and for the rings of each of these sets; SET_STEPS cut one."""

    class Sought(NamedTuple):
        is_cut: bool

    class Drawn(SearchCost):
        def __init__(self, listed: int, sets: list[tuple[str, int]]) -> None:
            super().__init__(graph("a100x4"), listed, rings)
            self._left = iter([])
            self._drawn = sets

        def searched(self, most: int) -> tuple[int, bool]:
            self._left = self._left if self._sums else self._each()
            return super().searched(most)

        def _each(self) -> Iterator[Any]:
            for key, steps in self._drawn:
                self.rings.append((key.encode(), steps))
                self._sums.append(steps + (self._sums[-1] if self._sums else 0))
                yield Sought(steps >= SET_STEPS)

    monkeypatch.setattr(search_cost, "RING_STEPS", MACHINE_STEPS)
    return {name: Drawn(listed, sets) for name, (listed, sets) in kinds.items()}


def test_the_many_go_before_the_one_that_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    part = CLUSTER_STEPS // 40
    each: Any = {name: (1, [(f"{name}-{n}", part) for n in range(10)]) for name in ("a", "b", "c", "d", "many")}
    found = efforts(monkeypatch, **each)
    left_out = too_dear({**dict.fromkeys("abcd", 1), "many": 40}, found.__getitem__)
    assert left_out
    assert "many" not in left_out
    assert "many" in too_dear(dict.fromkeys(found, 1), efforts(monkeypatch, **each).__getitem__)


def test_what_machines_have_in_common_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [SET_STEPS - 1] * 10
    common: Any = {name: (1, [(f"{n}", each) for n, each in enumerate(steps)]) for name in "abcde"}
    assert not too_dear(dict.fromkeys("abcde", 1), efforts(monkeypatch, **common).__getitem__)
    apart: Any = {name: (1, [(f"{name}-{n}", each) for n, each in enumerate(steps)]) for name in "abcde"}
    assert too_dear(dict.fromkeys("abcde", 1), efforts(monkeypatch, **apart).__getitem__)


def test_cheap_kinds_are_searched_whoever_claims_to_be_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    dear = [(f"{n}", FIRST_STEPS) for n in range(MACHINE_STEPS // FIRST_STEPS)]
    liars: Any = {f"0-liar-{n}": (0, [(f"{n}-{key}", steps) for key, steps in dear]) for n in range(10)}
    honest: Any = {"honest": (1, [(f"h{n}", FIRST_STEPS) for n in range(10)])}
    left_out = too_dear(dict.fromkeys([*liars, *honest], 1), efforts(monkeypatch, **liars, **honest).__getitem__)
    assert left_out
    assert "honest" not in left_out


def test_what_has_been_searched_before_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: Any = {
        "even": (3, [("x", FIRST_STEPS), ("y", FIRST_STEPS)]),
        "cut": (3, [("z", 10), ("cut", SET_STEPS)]),
        "long": (3, [(f"l{n}", SET_STEPS - 1) for n in range(8)]),
    }
    for most in (1, FIRST_STEPS, FIRST_STEPS + 3, 2 * FIRST_STEPS + 3, SET_STEPS, MACHINE_STEPS):
        fresh, known = efforts(monkeypatch, **kinds), efforts(monkeypatch, **kinds)
        for name in kinds:
            known[name].searched(MACHINE_STEPS)
            assert known[name].searched(most) == fresh[name].searched(most)


def test_of_many_that_are_too_dear_few_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    liars: Any = {f"liar-{n}": (0, [(f"cut-{n}", SET_STEPS)]) for n in range(500)}
    found = efforts(monkeypatch, **liars)
    assert too_dear(dict.fromkeys(liars, 1), found.__getitem__) == liars.keys()
    assert sum(bool(each.rings) for each in found.values()) == CLUSTER_STEPS // SET_STEPS
    unlisted = efforts(monkeypatch, dear=(MACHINE_STEPS + 1, []))
    assert too_dear({"dear": 40}, unlisted.__getitem__) == {"dear"}


def test_a_cluster_of_different_machines_has_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_cost, "CLUSTER_STEPS", 30_000)
    views = [node(f"gpu-{seed}", random_machine(seed, 4, 0.9), path=("r1",)) for seed in range(6)]
    cluster = cluster_of(*views, levels=("rack",))
    tables = Counting()
    answer = place(cluster, wanted(gpus=2), tables)
    assert not isinstance(answer, NoFit)
    assert 0 < len(tables.dear_in(cluster.forest.empty).kinds) < len(views)
    assert place(cluster, wanted(gpus=2), Tables()) == answer
    asked = Tables()
    for view in views:
        assert view.machine is not None
        asked.learn(view.machine)
    assert place(cluster, wanted(gpus=2), asked) == answer


@pytest.mark.parametrize("part", ["a link", "a GPU"])
def test_a_fleet_of_which_a_dozen_machines_have_lost_different_parts_is_searched(part: str) -> None:
    whole = graph("dgx-1v")
    links = [(a, b) for a in range(8) for b in range(a) if whole.links[a][b]]
    lost: list[tuple[int, int | None]] = list(links) if part == "a link" else [(gpu, None) for gpu in range(8)]
    kinds = [replace(without_links(whole, *each), topology_class=f"{number}") for number, each in enumerate(lost[:12])]
    views = [node(f"gpu-{number}", each, path=("r1",)) for number, each in enumerate([whole, *kinds])]
    cluster = cluster_of(*views, levels=("rack",))
    tables = Tables()
    assert not tables.dear_in(cluster.forest.empty).kinds
    answer = place(cluster, wanted(gpus=4), tables)
    assert isinstance(answer, Placement)
    assert answer.predicted_bus_bandwidth_gb_s == 80


MIXES: dict[str, Callable[[Random, int], Machine]] = {
    "8 GPUs, any links": lambda random, seed: random_machine(seed, 8, random.random()),
    "8 to 11 GPUs, all linked": lambda _, seed: random_machine(seed, 8 + seed % 4, 1.0),
    "1 to 64 GPUs, any links": lambda random, seed: random_machine(seed, random.randint(1, 64), random.random()),
}


@pytest.mark.parametrize("mix", [pytest.param(mix, marks=[pytest.mark.long] if " to " in mix else []) for mix in MIXES])
def test_five_hundred_different_machines_take_what_one_cluster_may(mix: str) -> None:
    random = Random(1)  # noqa: S311
    views = [node(f"gpu-{seed:03}", MIXES[mix](random, seed), path=(f"r{seed // 16}",)) for seed in range(DIFFERENT)]
    cluster = cluster_of(*views, levels=("rack",))
    tables = Counting()
    answer = place(cluster, wanted(gpus=8), tables)
    assert not isinstance(answer, NoFit)
    assert tables.taken <= CLUSTER_STEPS + 2 * MACHINE_STEPS
    assert 0 < len(tables.dear_in(cluster.forest.empty).kinds) < DIFFERENT
    asked = Tables()
    place(cluster, wanted(gpus=4), asked)
    assert place(cluster, wanted(gpus=8), asked) == answer


def test_a_machine_that_is_too_dear_is_not_learned() -> None:
    tables = Counting()
    tables.learn(random_machine(7, 16, 0.5))
    assert tables.taken == 0
    tables.learn(random_machine(7, 10, 1.0))
    assert tables.taken <= MACHINE_STEPS + 2 * SET_STEPS
