"""The peers of bench-fabric and bench-frag beside what their projects publish: their tests, and an example of a KEP."""

import numpy as np
import pytest

from bench import openb_peers, rankmap
from bench.clos import GPUS, Host, Job
from bench.clos_peers import PEERS, Peer
from bench.openb import MILLI, Kind
from bench.traced import go_gpuallocator

# Kueue v0.19, TestFindTopologyAssignments of pkg/cache/scheduler/tas_cache_test.go. It tells the room of each rack in
# Pods, here hosts: the nodes that most of its cases share, and those of single ones.
SHARED = {"b1": {"r1": 1, "r2": 3}, "b2": {"r1": 1, "r2": 2}}
FEWER_RACKS = {"b1": {"r1": 2, "r2": 2, "r3": 4}}
BLOCKS = {"b1": {"": 2}, "b2": {"": 1}, "b3": {"": 4}}
# The example of KEP 2724, "Selecting the algorithm": nodes with room for 3, 3, 2 and 1 Pods, and seven that come.
KEP = {"": {"n1": 3, "n2": 3, "n3": 2, "n4": 1}}
# Slurm's testsuite/python/tests/test_150_1.py in 26.11: BlockName=b1 Nodes=node[1-4], b2 node[5-8], BlockSizes=4,8.
BLOCKS_OF_FOUR = {"": {"b1": 4, "b2": 4}}

# FGD's typical Pods of its own test (pkg/utils/frag_test.go at 8f3d641, TestNodeGpuShareFragAmountWithNonGpu): CPU in
# thousandths of a core, GPUs, thousandths of each, and percent of all Pods.
TYPICAL = (
    *((15700, 1, 1000, 28.69), (11900, 1, 1000, 18.93), (11400, 1, 1000, 12.27), (1000, 0, 0, 7.36)),
    *((18710, 1, 1000, 4.85), (8200, 1, 1000, 3.79), (16400, 1, 1000, 3.31), (9810, 1, 1000, 1.97)),
    *((15200, 1, 1000, 1.87), (11200, 1, 1000, 1.81), (14200, 1, 1000, 1.76), (12000, 0, 0, 1.65)),
    *((14900, 1, 1000, 1.39), (60200, 4, 1000, 1.23), (64200, 8, 1000, 1.07), (32200, 4, 1000, 1.01)),
    *((17400, 2, 1000, 0.91), (30200, 2, 1000, 0.69), (16000, 1, 1000, 0.64), (15000, 1, 1000, 0.59)),
    *((64000, 8, 1000, 0.53), (15000, 0, 0, 0.53), (11910, 1, 1000, 0.53), (120200, 8, 1000, 0.48)),
    *((11300, 1, 1000, 0.37), (30000, 2, 1000, 0.32), (9800, 1, 1000, 0.32), (8000, 1, 1000, 0.32)),
    *((2000, 1, 1000, 0.27), (2000, 1, 80, 0.27), (1000, 1, 1000, 0.27)),
)


def _fabric(rooms: dict[str, dict[str, int]]) -> list[Host]:
    return [Host(pod, f"{pod}/{tor}") for pod, tors in rooms.items() for tor, room in tors.items() for _ in range(room)]


def _job(hosts: int, number: int = 0) -> Job:
    return Job(number, 0.0, hosts * GPUS, 1.0)


def _taken(fabric: list[Host], peer: Peer, job: Job) -> dict[str, int] | None:
    """How many hosts of each switch."""
    taken = peer.take(job, 0.0, 0)
    if taken is None:
        return None
    tors = [fabric[host].tor for host, _ in taken]
    return {tor: tors.count(tor) for tor in dict.fromkeys(tors)}


@pytest.mark.parametrize(
    ("rooms", "rule", "hosts", "expected"),
    [
        pytest.param(
            SHARED, "kueue required", 1, {"b1/r1": 1}, id="rack required; single Pod fits in a rack, of two alike"
        ),
        pytest.param(SHARED, "kueue required", 3, {"b1/r2": 3}, id="rack required; multiple Pods fit in a rack"),
        pytest.param(SHARED, "kueue required", 2, {"b2/r2": 2}, id="rack required; multiple Pods fit in some racks"),
        pytest.param(SHARED, "kueue required", 4, {"b1/r1": 1, "b1/r2": 3}, id="block required; spread over two racks"),
        pytest.param(SHARED, "kueue preferred", 4, {"b1/r1": 1, "b1/r2": 3}, id="rack preferred; only a block can"),
        pytest.param(
            SHARED,
            "kueue preferred",
            6,
            {"b1/r1": 1, "b1/r2": 3, "b2/r2": 2},
            id="rack preferred; only multiple blocks can",
        ),
        pytest.param(FEWER_RACKS, "kueue preferred", 4, {"b1/r3": 4}, id="minimize racks before nodes"),
        pytest.param(BLOCKS, "kueue preferred", 5, {"b2/": 1, "b3/": 4}, id="block preferred; Pods fit in 2 blocks"),
        pytest.param(KEP, "kueue preferred", 7, {"/n1": 3, "/n2": 3, "/n4": 1}, id="KEP 2724: the last by best fit"),
    ],
)
def test_kueue_takes_what_its_own_tests_expect(
    rooms: dict[str, dict[str, int]], rule: str, hosts: int, expected: dict[str, int]
) -> None:
    fabric = _fabric(rooms)
    assert _taken(fabric, Peer(fabric, PEERS[rule]), _job(hosts)) == expected


def test_kueue_refuses_what_no_rack_has_room_for_where_a_rack_is_required() -> None:
    """As "rack required; too many pods to fit in any rack", whose racks are full here, as they are too small there."""
    fabric = _fabric(SHARED)
    peer = Peer(fabric, PEERS["kueue required"])
    assert _taken(fabric, peer, _job(2)) == {"b2/r2": 2}
    assert _taken(fabric, peer, _job(3, 1)) == {"b1/r2": 3}
    assert _taken(fabric, peer, _job(2, 2)) is None


def test_slurm_keeps_a_job_of_less_than_a_block_in_one() -> None:
    """test_const1: jobs of two and of three nodes run, each in a block, and a third of three waits though three are
    free."""
    fabric = _fabric(BLOCKS_OF_FOUR)
    peer = Peer(fabric, PEERS["slurm block"])
    first, second = _taken(fabric, peer, _job(2)), _taken(fabric, peer, _job(3, 1))
    assert first is not None
    assert second is not None
    assert (list(first.values()), list(second.values())) == ([2], [3])
    assert first.keys() != second.keys()
    assert _taken(fabric, peer, _job(3, 2)) is None


def test_slurm_keeps_each_segment_in_one_block() -> None:
    """test_segment_nodelist (test_150_2.py): six nodes in segments of three need three of each block; with segments of
    four, eight nodes need four of each, and wait where three of one are left."""
    fabric = _fabric(BLOCKS_OF_FOUR)
    assert _taken(fabric, Peer(fabric, PEERS["slurm block"]), _job(8)) == {"/b1": 4, "/b2": 4}
    peer = Peer(fabric, PEERS["slurm block"])
    assert _taken(fabric, peer, _job(1)) is not None
    assert _taken(fabric, peer, _job(8, 1)) is None


@pytest.mark.parametrize(
    ("rooms", "hosts", "expected"),
    [
        ({"b1": 8, "b2": 4}, 8, {"/b1": 4, "/b2": 4}),
        ({"b1": 8, "b2": 8}, 8, {"/b2": 8}),
        ({"b1": 8, "b2": 5, "b3": 4}, 4, {"/b3": 4}),
    ],
)
def test_slurm_places_each_segment_where_it_is_tightest(
    rooms: dict[str, int], hosts: int, expected: dict[str, int]
) -> None:
    """eval_nodes_block.c selects for each segment the block with the lowest sufficient count, of equals the last; the
    topology guide says that --segment asks nothing of all segments together."""
    fabric = _fabric({"": rooms})
    assert _taken(fabric, Peer(fabric, PEERS["slurm block"]), _job(hosts)) == expected


@pytest.mark.parametrize(
    ("free", "size", "chosen"),
    [
        ((0, 2, 4, 5), 2, (4, 5)),
        ((0, 4, 5, 6), 2, (5, 6)),
        ((0, 1, 3), 2, (0, 3)),
        ((0, 1, 4), 2, (0, 4)),
        ((1, 2, 4, 5, 6, 7), 2, (1, 2)),
        ((4, 5, 6, 7), 2, (4, 7)),
        (tuple(range(8)), 4, (0, 1, 2, 3)),
        ((4, 5, 6, 7), 4, (4, 5, 6, 7)),
    ],
)
def test_go_gpuallocator_chooses_as_its_own_tests_expect(
    free: tuple[int, ...], size: int, chosen: tuple[int, ...]
) -> None:
    """TestBestEffortAllocate and TestBestEffortDGX1VoltaGPUAllocTwo and -Four of besteffort_test.go: the recorded
    choices, whose PCIe is not quite that of NewDGX1VoltaNode."""
    mask = sum(1 << position for position in free)
    assert go_gpuallocator("dgx-v")(mask, size) == sum(1 << position for position in chosen)


@pytest.mark.parametrize(("rule", "expected"), [("spread", 0), ("binpack", 1)])
def test_kube_scheduler_scores_as_its_own_tests_expect(rule: str, expected: int) -> None:
    """ "resources requested, pods scheduled with resources" of least_allocated_test.go (57 to 45) and
    most_allocated_test.go (42 to 55) in pkg/scheduler/framework/plugins/noderesources: of two equal nodes one holds a
    quarter of what counts, and a Pod asks for a quarter."""
    fabric = _fabric({"": {"t": 2}})
    peer = Peer(fabric, PEERS[rule])
    peer.free[1] -= GPUS // 4
    assert peer.take(Job(0, 0.0, GPUS // 4, 1.0), 0.0, 0) == [(expected, GPUS // 4)]


@pytest.mark.parametrize("rule", ["spread", "binpack"])
@pytest.mark.parametrize(
    ("scores", "able"),
    [
        pytest.param((1, 2), {1}, id="unique properly ordered scores"),
        pytest.param((1, 2, 2, 2), {1, 2, 3}, id="equal scores"),
        pytest.param((3, 3, 2, 1, 3), {0, 1, 4}, id="out of order scores"),
    ],
)
def test_kube_scheduler_takes_any_of_the_nodes_that_score_best(
    rule: str, scores: tuple[int, ...], able: set[int]
) -> None:
    """TestSelectHost of pkg/scheduler/schedule_one_test.go: each Pod is one of many, of which all that may be taken
    are."""
    fabric = _fabric({"": {"t": len(scores)}})
    quarter = GPUS // 4
    free = [quarter * (score if rule == "spread" else 4 - score) for score in scores]
    assert {_first_of(fabric, rule, free, quarter, number) for number in range(64)} == able


def test_random_takes_any_node_that_has_room() -> None:
    """The same, where no node scores better than another."""
    fabric = _fabric({"": {"t": 5}})
    quarter = GPUS // 4
    free = [quarter, 0, 2 * quarter, GPUS, quarter - 1]
    assert {_first_of(fabric, "random", free, quarter, number) for number in range(64)} == {0, 2, 3}
    assert _first_of(fabric, "random", [0] * 5, quarter, 0) is None
    free = [GPUS, GPUS - 1, GPUS, GPUS, 0]
    assert {_first_of(fabric, "random", free, GPUS, number) for number in range(64)} == {0, 2, 3}


def _first_of(fabric: list[Host], rule: str, free: list[int], gpus: int, number: int) -> int | None:
    peer = Peer(fabric, PEERS[rule])
    peer.free = list(free)
    taken = peer.take(Job(number, 0.0, gpus, 1.0), 0.0, 0)
    return taken[0][0] if taken else None


def test_first_fit_fills_one_node_after_the_other() -> None:
    """Flux's Fluxion with its policy `lonode`, t/t3001-resource-basic.t of flux-sched: "match allocate 9 jobs with 1
    slot (8c,2m)", of which either of two nodes holds four, and "match allocate 5 jobs instead - last one must fail",
    of which it holds two."""
    fabric = _fabric({"": {"t": 2}})
    for of_a_node in (4, 2):
        peer = Peer(fabric, PEERS["first-fit"])
        jobs = [Job(number, 0.0, GPUS // of_a_node, 1.0) for number in range(2 * of_a_node + 1)]
        taken = [peer.take(job, 0.0, 0) for job in jobs]
        assert [found and found[0][0] for found in taken] == [0] * of_a_node + [1] * of_a_node + [None]


@pytest.mark.parametrize(
    ("domains", "of_ranks"),
    [
        pytest.param(
            [("b2", "r1"), ("b1", "r2"), ("b1", "r1"), ("b2", "r1"), ("b1", "r1")],
            [("b1", "r1"), ("b1", "r1"), ("b1", "r2"), ("b2", "r1"), ("b2", "r1")],
            id="ranks: ungate pods according to their ranks for batch/Job - for all Pods",
        ),
        pytest.param(
            [("b2", "r1"), ("b1", "r1"), ("b1", "r2"), ("b1", "r1")],
            [("b1", "r1"), ("b1", "r1"), ("b1", "r2"), ("b2", "r1")],
            id="ranks: support rank-based ordering for JobSet - for all Pods",
        ),
    ],
)
def test_kueue_gives_ranks_to_domains_as_its_own_tests_expect(
    domains: list[tuple[str, ...]], of_ranks: list[tuple[str, ...]]
) -> None:
    """pkg/controller/tas/topology_ungater_test.go of Kueue v0.19; the domains that hold one host each, in no order."""
    gang = rankmap.Gang.__new__(rankmap.Gang)
    gang.domains = domains
    assert rankmap.PEERS["kueue_domain_order"](gang) == of_ranks


@pytest.mark.parametrize(
    ("cpu", "free", "useless"),
    [(64_000, 8, 887.2), (32_000, 4, 554.4), (0, 4, 4000)],
    ids=["empty", "halved", "no CPU"],
)
def test_fgd_finds_as_much_useless_as_its_own_test_expects(
    monkeypatch: pytest.MonkeyPatch, cpu: int, free: int, useless: float
) -> None:
    typical = {Kind(cpu, 0, gpus, milli, ()): percent for cpu, gpus, milli, percent in TYPICAL}
    monkeypatch.setattr(openb_peers, "_typical", lambda _name: typical)
    monkeypatch.setattr(openb_peers, "kinds", lambda _name: {Kind(1000, 0, 1, MILLI, ()): 1})
    fgd = openb_peers.Fgd("default", 0)
    gpus = np.array([[MILLI] * free + [0] * (8 - free)])
    assert fgd.useless(np.array([cpu]), gpus, model=0)[0] == pytest.approx(useless, abs=0.01)
