"""The keys that the benchmarks' JSON and pages have to have, on runs that are too small to tell anything."""

from itertools import product

import pytest

from bench import fabric, frag, joint, node_gpu, queue_depth
from bench.chart import Bars
from bench.clos_peers import PEERS

MACHINE = "summit"  # the smallest that has rings, trees and a recorded peer


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_gpu, "SEEDS", 1)
    monkeypatch.setattr(node_gpu, "JOBS", 5)
    monkeypatch.setattr(node_gpu, "IRREGULAR", 1)
    monkeypatch.setattr(node_gpu, "MASKS", 2)
    monkeypatch.setattr(joint, "JOBS", 60)
    monkeypatch.setattr(queue_depth, "WAITING", 48)  # one of each shape
    monkeypatch.setattr(joint, "LOAD", 4.0)  # so that whole nodes have to wait


def test_node_gpu_tells_each_judge_and_sixteen_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[str] = []

    def write(_section: str, _title: str, text: str, _bars: Bars) -> None:
        pages.append(text)

    monkeypatch.setattr(node_gpu, "write", write)
    found, of_sixteen = node_gpu.measured(MACHINE), node_gpu.sixteen()
    for judge in ("ring", "tree"):
        assert found[judge].keys() >= {"ratio_to_exhaustive", "at_ideal", "p5", "peers", "at_ideal_to_best_peer"}
        assert found[judge]["peers"].keys() == {"first-fit", "random", "go-gpuallocator"}
    assert of_sixteen.keys() >= {"first_ms_16_gpus", "p99_ms_16_gpus"}
    node_gpu.report({MACHINE: found}, {**of_sixteen, "first_ms_16_gpus": 765.4, "p99_ms_16_gpus": 43.2})
    assert "never seen before at most 765, the same one later, for any number of GPUs" in pages[0]
    assert "under any mask of free ones, 43 (p99)" in pages[0]


def test_joint_tells_what_is_asked_of_it() -> None:
    found = joint.measured(MACHINE, [joint.some(MACHINE, range(1))])
    assert found.keys() >= {"at_ideal", "p5", "wait_ratio_to_binpack", "peers", "at_ideal_to_best_peer"}
    assert found["peers"].keys() == {
        f"{by} + {which}" for by, which in product(("spread", "binpack"), ("first-fit", "go-gpuallocator"))
    }


def test_fabric_tells_what_is_asked_of_it() -> None:
    def row(one_tor: int, wait: float) -> fabric.Row:
        return {"one_tor": [one_tor, 1], "spread": [1.0], "waits": [wait], "gar": [0.9]}

    never, ours, ever = row(0, 1.0), row(1, 1.5), row(1, 3.0)
    rows = {name: ever if name == fabric.WAITS_FOR_EVER else never for name in PEERS}
    found = fabric.measured([{fabric.OURS: ours, **rows}])
    assert found.keys() >= {"gap_closed", "extra_wait_share", "peers"}
    assert (found["one_tor_to_best_peer"], found["gar_to_best_peer"]) == (1.0, 1.0)


def test_frag_tells_what_is_asked_of_it() -> None:
    rows = [{"allocation": 96.0, "bestfit_cpu": 95.0, "fgd_reproduced": 95.0, "bestfit_reproduced": 93.0}]
    found = frag.measured("default", rows)
    assert found.keys() >= {"allocation", "fgd", "fgd_reproduced", "bestfit_reproduced", "points_over_fgd"}
    # Of 95.39 and 93.08, as published.
    assert found["allocation_to_best_peer"] == 1.0064


@pytest.mark.parametrize("says", queue_depth.SAYS)
def test_queue_depth_frees_what_somebody_gets(says: str) -> None:
    keys = {"idle_event_ms", "freeing_event_ms", "event_p99_ms", "decision_p99_ms", "decision_max_ms"}
    assert queue_depth.events_ms(250, says).keys() == keys
