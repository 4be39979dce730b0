"""Every all-reduce that was ever measured on real machines, against what is predicted of it."""

import json
from ast import literal_eval
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from closeknit.agent.discovery.topology import discover
from closeknit.agent.sources.recorded import RecordedSource
from closeknit.api.nodetopology import Method
from closeknit.machine.graph import machine
from closeknit.placement.allreduce.bandwidth import EVERY_NIC
from closeknit.placement.allreduce.calibration import reached
from closeknit.placement.allreduce.paths import PathType
from closeknit.placement.allreduce.rings import rings
from closeknit.placement.gang.prediction import predict
from closeknit.placement.gpusets.exhaustive import ExhaustiveSets
from closeknit.placement.gpusets.masks import mask_of
from closeknit.placement.gpusets.set_facts import SetFacts
from closeknit.placement.gpusets.set_value import ANY, Measure, SetCriteria
from scenarios.machines import dgx1v, hgx_a100, hgx_h200

FIXTURES = Path(__file__).parents[3] / "fixtures"
GIB = str(1 << 30)
FITTED = {(0, 1), (0, 1, 2, 3)}  # of eight
BAR = 0.05

Measured = tuple[str, tuple[int, ...], float]


def sets_of(machine_name: str) -> ExhaustiveSets:
    readings = RecordedSource(FIXTURES / "dumps" / f"{machine_name}.json").read()
    return ExhaustiveSets(SetFacts(machine(discover(readings, Method.RECORDED).spec), rings))


def recorded(machine_name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((FIXTURES / "all-reduce" / f"{machine_name}.json").read_text())
    return found


def of_eight() -> Iterator[Measured]:
    for said, by_size in recorded("hgx-h200-8gpu-vm").items():
        gpus, _, environment = said.partition(") ")
        if environment == "{}":  # launch sets none of the others
            assert isinstance(by_size, dict)
            yield "hgx-h200-8gpu-vm", literal_eval(f"{gpus})"), by_size[GIB]


def of_fewer(machine_name: str, gpus: int) -> Iterator[Measured]:
    for size, bounds in recorded(machine_name).items():
        assert isinstance(bounds, list)
        for chosen in combinations(range(gpus), int(size)):
            yield from ((machine_name, chosen, measured) for measured in bounds)


MEASURED = [*of_eight(), *of_fewer("hgx-h200-4gpu-vm", 4), *of_fewer("hgx-h200-2gpu-vm", 2)]


def predicted(machine_name: str, gpus: tuple[int, ...]) -> float:
    sets = sets_of(machine_name)
    found = predict([("node", sets, mask_of(gpus), EVERY_NIC)], None, None, None).gb_s
    assert found is not None
    return found


@pytest.mark.parametrize(("machine_name", "gpus", "measured"), MEASURED)
def test_a_recorded_set_is_predicted(machine_name: str, gpus: tuple[int, ...], measured: float) -> None:
    bar = 0.001 if (machine_name, gpus in FITTED) == ("hgx-h200-8gpu-vm", True) else BAR
    assert predicted(machine_name, gpus) == pytest.approx(measured, rel=bar)


def test_all_that_was_recorded_is_held_against_it() -> None:
    assert len(MEASURED) == 5 + 2 * (6 + 4 + 1) + 2


def test_the_bar_could_not_be_met_by_the_plan_alone() -> None:
    planned = sets_of("hgx-h200-8gpu-vm").facts.bandwidth[0b11].order_gb_s
    assert planned == 360 > 326.4 * (1 + BAR)


@pytest.mark.parametrize(
    ("planned", "worst", "sm"),
    [(240.0, PathType.NVL, 80), (720.0, PathType.NVL, 100), (40.0, PathType.SYS, 90), (360.0, PathType.NVL, None)],
)
def test_what_was_not_measured_is_not_calibrated(planned: float, worst: PathType, sm: int | None) -> None:
    assert reached(planned, worst, sm, 2) == planned


def test_one_gpu_has_nothing_to_reach() -> None:
    assert sets_of("hgx-h200-2gpu-vm").facts.reached_gb_s(1) == float("inf")


@pytest.mark.parametrize("spec", [hgx_h200(), hgx_a100(), dgx1v()])
def test_calibration_changes_no_choice(spec: object) -> None:
    """Of two sets of one size the one with the better plan is the better one, and the best of a pool is such a one."""
    graph = machine(spec)  # type: ignore[arg-type]
    sets = ExhaustiveSets(SetFacts(graph, rings))
    for size in range(2, 9):
        ask = SetCriteria(size, alone=True)
        every = [mask_of(chosen) for chosen in combinations(range(8), size)]
        by_plan = sorted(every, key=lambda mask: sets.facts.bandwidth[mask].order_gb_s)
        values = [sets.facts.reached_gb_s(mask) for mask in by_plan]
        assert values == sorted(values)
        assert sets.best(sets.facts.every, ask, ANY, Measure.BUS) == values[-1]
