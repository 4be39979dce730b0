"""What is said of the rings of a set before any is searched."""

from dataclasses import replace
from random import Random

import pytest

from closeknit.machine.graph import Machine
from closeknit.placement.allreduce import rings as module
from closeknit.placement.allreduce.hops import MAX_RINGS, Hop, Hops, is_closed
from closeknit.placement.allreduce.paths import UNIT, Path, Paths, PathType, paths, pcie_tree
from closeknit.placement.allreduce.rings import rings
from closeknit.placement.gang.cache import Tables
from scenarios.clusters import graph

LINK = 20 * UNIT  # MB/s


def mesh(*links: tuple[int, int, int]) -> Paths:
    """Paths of GPUs that so many NVLinks join, two by two."""
    gpus = 1 + max(max(a, b) for a, b, _ in links)
    capacity: list[int] = []
    between: list[list[Path | None]] = [[None] * gpus for _ in range(gpus)]
    for a, b, number in links:
        for start, to in ((a, b), (b, a)):
            between[start][to] = Path(PathType.NVL, (len(capacity),))
            capacity.append(number * LINK)
    return Paths(tuple(map(tuple, between)), tuple(capacity), max(capacity), 70, intel=False)


def out_of_fabric(name: str, gpu: int) -> Machine:
    """A machine of which one GPU has no NVLink."""
    whole = graph(name)
    if whole.switched:
        links = tuple(0 if number == gpu else each for number, each in enumerate(whole.switch_links))
        return replace(whole, switch_links=links, topology_class="broken")
    pairs = tuple(
        tuple(0 if gpu in (a, b) else each for b, each in enumerate(row)) for a, row in enumerate(whole.links)
    )
    return replace(whole, links=pairs, topology_class="broken")


def test_a_neighbour_is_on_one_side_of_a_ring_only() -> None:
    assert Hops(mesh((0, 1, 2), (0, 2, 1), (1, 2, 2))).limit(LINK, PathType.NVL) == 2
    assert Hops(mesh((0, 1, 2))).limit(LINK, PathType.NVL) == 2


def test_what_lies_behind_a_shared_link_is_counted() -> None:
    broken = out_of_fabric("hgx-h200", 0)
    far = paths(broken, pcie_tree(broken), (0, 4, 5, 6), 90)
    assert 22 * UNIT in far.capacity
    assert Hops(far).limit(11 * UNIT, PathType.SYS) == 2  # 22 GB/s between the sockets, 48 of the GPU


def test_a_host_bridge_slows_the_rings_to_others_than_the_mate() -> None:
    broken = out_of_fabric("dgx-1v", 0)
    near = paths(broken, pcie_tree(broken), (0, 1, 2, 3), 70)
    assert [near.between[0][1] is not None and near.between[0][1].type, near.intel] == [PathType.PIX, True]
    assert Hops(near).limit(6 * UNIT, PathType.PHB) == 1  # twice 6 to the mate and twice 7.2 are more than 12 each way


def test_a_ring_needs_gpus_that_hold_together_without_any_one_of_them() -> None:
    def steps(*neighbours: str) -> list[list[Hop]]:
        return [[Hop(int(to), (), 1) for to in each] for each in neighbours]

    assert is_closed(steps("1", "0"))
    assert is_closed(steps("13", "02", "13", "20"))
    assert not is_closed(steps("123", "0", "0", "0"))
    assert not is_closed(steps("12", "02", "0134", "24", "23"))


@pytest.mark.parametrize("name", ["dgx-1v", "dgx-1p", "hgx-h200", "pairs8", "a100x4"])
def test_without_limits_the_rings_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(7)  # noqa: S311
    for machine in (graph(name), out_of_fabric(name, 0)):
        tree, gpus = pcie_tree(machine), range(len(machine.gpus))
        sizes = [random.randint(2, min(5, len(gpus))) for _ in range(12)]
        sets = [paths(machine, tree, sorted(random.sample(gpus, size)), 70) for size in sizes]
        limited = [rings(each)[:4] for each in sets]
        with monkeypatch.context() as patch:
            patch.setattr(Hops, "limit", lambda *_: MAX_RINGS)
            patch.setattr(module, "is_closed", lambda _: True)
            patch.setattr(module, "_alike", lambda *_: ())
            assert [rings(each)[:4] for each in sets] == limited


# Without what a GPU can turn 1,400,000 and more; without alike speeds pairs take 900,000.
@pytest.mark.parametrize(("name", "most"), [("hgx-h200", 200_000), ("dgx-1v", 900_000), ("pairs8", 600_000)])
def test_a_machine_with_a_gpu_out_of_the_fabric_takes_few_steps(name: str, most: int) -> None:
    tables = Tables()
    tables.learn(out_of_fabric(name, 0))
    assert tables.effort_of(out_of_fabric(name, 0)).steps <= most


def test_the_digest_of_paths_stands_for_all_of_them() -> None:
    one = mesh((0, 1, 2), (0, 2, 1), (1, 2, 2))
    assert one.digest() == mesh((0, 1, 2), (0, 2, 1), (1, 2, 2)).digest()
    others = [
        mesh((0, 1, 2), (0, 2, 2), (1, 2, 2)),
        one._replace(sm=90),
        one._replace(intel=True),
        one._replace(total=1),
        one._replace(between=one.between[::-1]),
    ]
    assert len({each.digest() for each in (one, *others)}) == len(others) + 1
