"""A driver that fails and lies in any of its calls: never a crash, never an object that is refused, never a guess."""

import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from closeknit.agent.discovery.health.driver import CRASHED, HUNG
from closeknit.agent.discovery.health.history import History, followed
from closeknit.agent.discovery.publication import Publication, publication
from closeknit.agent.discovery.readings.carried_gpus import remembered
from closeknit.agent.discovery.readings.readings import HealthReading, Readings
from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.discovery.topology import Discovery, discover
from closeknit.agent.nvml import gpu_state as nvml_health
from closeknit.agent.nvml.nvml_client import NoAnswer
from closeknit.agent.nvml.nvml_messages import ANSWERS, DriverQuestion, framed
from closeknit.agent.sources import hardware
from closeknit.agent.sources.hardware import HardwareSource
from closeknit.agent.sources.simulated import load_profile
from closeknit.api.nodetopology import Method, NodeTopologySpec
from closeknit.api.nodetopology_status import NodeTopologyStatus
from harness.lying_library import LyingLibrary
from harness.nvml_driver import InProcess, T

SMALL = ("rtx3090-2", "gh200", "ac922-2", "gh200-quad", "h200-nvl-4")
LARGE = ("hgx-h200", "dgx1-v100", "gb200-tray", "pcie-8", "ac922-6", "hgx-a100-8", "dgx2")
OF_NEIGHBOURS = {"nvlink_generation", "link_bandwidth_gb_s"}  # told where they are not those of most GPUs
LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
SHORT = 30
SEEDS = [range(SHORT), pytest.param(range(SHORT, 1500), marks=pytest.mark.long)]
READINGS, STEP_S = 5, 40.0  # so far apart that what failed is read again


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Unsteady(InProcess):
    """A driver whose process may hang or crash, and whose answers travel as between two processes."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self.hangs = 0.0

    def ask(self, question: DriverQuestion[T], deadline_s: float) -> T:
        if self._chance.random() < self.hangs:
            self.session.close()
            self.is_open = False
            raise NoAnswer(self._chance.choice((HUNG, CRASHED)))
        self.is_open = True
        answer = super().ask(question, deadline_s)
        decoded: T = msgspec.msgpack.decode(framed(answer)[4:], type=ANSWERS[type(question)])
        return decoded


@dataclass
class Bed:
    """A machine with a driver, read again and again as the agent does."""

    chance: random.Random
    readings: Readings
    library: LyingLibrary
    driver: Unsteady
    source: HardwareSource
    clock: Clock
    last: Readings | None = None
    course: History = History()  # noqa: RUF009 -- it is frozen
    status: NodeTopologyStatus = NodeTopologyStatus()  # noqa: RUF009

    def read(self) -> tuple[Discovery, Publication]:
        self.clock.now += STEP_S
        self.last = remembered(self.last, self.source.read())
        self.course = followed(self.course, self.last, self.clock.now)
        found = discover(self.last, Method.NVML, self.course, frozenset())
        wanted = publication(found, self.status, 1, None, "2026-11-22T12:00:00Z", found.spec)
        self.status = wanted.status
        return found, wanted


def bed(seed: int, root: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    chance = random.Random(seed)  # noqa: S311
    well = HealthReading(recovery_action=0, rows_pending=False, rows_failed=False, uncorrected_ecc=0, link_errors=0)
    machine = readings_of(load_profile(chance.choice(SMALL if seed < SHORT else SMALL + LARGE)), "node-1")
    machine = msgspec.structs.replace(
        machine, gpus=tuple(msgspec.structs.replace(gpu, health=well) for gpu in machine.gpus)
    )
    library = LyingLibrary(machine, chance)
    library.install(monkeypatch)
    clock, driver = Clock(), Unsteady(chance)
    monkeypatch.setattr(hardware, "monotonic", clock)
    monkeypatch.setattr(nvml_health, "_sees_all_processes", lambda: chance.random() < 0.5)
    return Bed(chance, machine, library, driver, HardwareSource(root, driver), clock)


def whole_numbers(value: Any) -> list[int]:
    match value:
        case dict():
            return [number for each in value.values() for number in whole_numbers(each)]
        case list():
            return [number for each in value for number in whole_numbers(each)]
        case bool():
            return []
        case int():
            return [value]
    return []


def check_accepted(wanted: Publication) -> None:
    """The API server takes it."""
    for model, part in ((NodeTopologySpec, wanted.spec), (NodeTopologyStatus, wanted.status)):
        wire = part.wire()
        msgspec.json.encode(wire)
        assert model.model_validate(wire) == part
        assert all(-(2**63) <= number < 2**63 for number in whole_numbers(wire))
    assert all(LABEL.fullmatch(value) for value in wanted.labels.values()), wanted.labels


@pytest.mark.parametrize("seeds", SEEDS)
def test_whatever_it_says_is_published_or_left_out(
    seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in seeds:
        of = bed(seed, tmp_path, monkeypatch)
        print("seed", seed)
        for _ in range(READINGS):
            of.library.fails = of.chance.choice((0.0, 0.0, 0.02, 0.5))
            of.library.lies = of.chance.choice((0.0, 0.01, 0.1, 1.0))
            of.driver.hangs = of.chance.choice((0.0, 0.0, 0.05))
            check_accepted(of.read()[1])
            of.source.live()
            of.source.traffic([gpu.uuid for gpu in of.readings.gpus if gpu.uuid])


@pytest.mark.parametrize("seeds", SEEDS)
def test_what_fails_changes_nothing_of_what_was_read(
    seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in seeds:
        of = bed(seed, tmp_path, monkeypatch)
        print("seed", seed)
        whole, _ = of.read()
        for _ in range(READINGS - 2):
            of.library.fails, of.driver.hangs = of.chance.choice((0.01, 0.1, 1.0)), of.chance.choice((0.0, 0.05))
            found, wanted = of.read()
            check_accepted(wanted)
            assert found.spec == whole.spec
        of.library.fails = of.driver.hangs = 0.0
        of.clock.now += 600.0  # whoever fell silent is asked again
        for _ in range(len(of.readings.gpus) + 1):  # one of them in each reading
            found, _ = of.read()
        assert found == whole


@pytest.mark.parametrize("seeds", SEEDS)
def test_of_a_first_reading_that_fails_nothing_is_zero(
    seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in seeds:
        of = bed(seed, tmp_path, monkeypatch)
        print("seed", seed)
        truth = {gpu.index: gpu for gpu in discover(of.readings, Method.NVML).spec.gpus}
        of.library.fails = of.chance.choice((0.05, 0.3, 0.7))
        found, wanted = of.read()
        check_accepted(wanted)
        for gpu in found.spec.gpus:
            told = gpu.model_dump(exclude_none=True, exclude=OF_NEIGHBOURS)
            assert is_part(told, truth[gpu.index].model_dump())


def is_part(told: Any, true: Any) -> bool:
    """Whether all that is told is true; what is true need not be told."""
    match told:
        case dict():
            return all(is_part(each, true[name]) for name, each in told.items())
        case list():
            return not told or (len(told) == len(true) and all(map(is_part, told, true)))
    return bool(told == true)
