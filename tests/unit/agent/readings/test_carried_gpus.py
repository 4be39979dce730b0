"""What was read before stands in for what fails now, and for nothing else."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from closeknit.agent.discovery.readings.carried_gpus import remembered
from closeknit.agent.discovery.readings.readings import (
    GpuReading,
    HealthReading,
    LinkReading,
    MigDeviceReading,
    PairReading,
    Readings,
)
from closeknit.agent.discovery.simulated.profile import Faults, LinkFault
from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.discovery.topology import discover
from closeknit.agent.nvml.nvml_messages import AskGpu, AskPairs, AskSurvey, Question, Survey
from closeknit.agent.nvml.nvml_session import NvmlSession
from closeknit.agent.sources.recorded import RecordedSource
from closeknit.agent.sources.simulated import load_profile, profile_names
from closeknit.api.nodetopology import Method, NodeTopologySpec
from harness.nvml_library import NvmlLibrary

DUMPS = sorted((Path(__file__).parents[3] / "fixtures" / "dumps").glob("*.json"))
replace = msgspec.structs.replace


def spec(readings: Readings) -> NodeTopologySpec:
    return discover(readings, Method.NVML).spec


class Machine:
    """A machine below the real binding, read question by question, so that one answer can be asked for again."""

    def __init__(self, readings: Readings, monkeypatch: pytest.MonkeyPatch) -> None:
        self.around = readings
        self.library = NvmlLibrary(readings)
        self.library.install(monkeypatch)
        self.session = NvmlSession()
        self.answers: dict[Question, Any] = {}
        for question in self.questions(self.session.survey()):
            self.answers[question] = self.session.answer(question)

    @staticmethod
    def questions(survey: Survey) -> list[Question]:
        pairs = [AskPairs(index, tuple(range(index + 1, survey.gpus))) for index in range(survey.gpus)]
        return [AskSurvey(), *map(AskGpu, range(survey.gpus)), *pairs]

    def with_one_failing_call(self, code: int, gpus: Collection[int]) -> Iterator[tuple[str, Readings]]:
        """The machine as it is read when one call fails, for each call that is made for these GPUs, or for none."""
        for question, whole in self.answers.items():
            if isinstance(question, AskGpu | AskPairs) and question.index not in gpus:
                continue
            before = self.library.calls
            self.session.answer(question)
            for call in range(self.library.calls - before):
                self.library.failing = (self.library.calls + call, code)
                answer = self.session.answer(question)
                self.library.failing = None
                if answer != whole:
                    yield f"call {call} of {question}", self.readings(self.answers | {question: answer})
                    self.session.survey()  # opens again what was closed

    def readings(self, answers: dict[Question, Any]) -> Readings:
        survey = answers[AskSurvey()]
        gpus: list[GpuReading] = [answers[AskGpu(index)] for index in range(survey.gpus)]
        silent = {gpu.index for gpu in gpus if "handle" in gpu.errors}
        pairs: list[PairReading] = [
            pair for question, answer in answers.items() if isinstance(question, AskPairs) for pair in answer
        ]
        return replace(
            self.around,
            driver_version=survey.driver_version,
            cuda_version=survey.cuda_version,
            gpus=tuple(gpus),
            pairs=tuple(pair for pair in pairs if not silent & {pair.a, pair.b}),
            errors=survey.errors,
        )


MACHINES = [
    *(pytest.param(RecordedSource(path).read(), id=path.stem) for path in DUMPS),
    *(pytest.param(readings_of(load_profile(name), "node-1"), id=name) for name in profile_names()),
]


UNKNOWN, LOST = 999, 15


@pytest.mark.parametrize("machine", MACHINES)
def test_one_failed_call_never_changes_the_spec(
    machine: Readings, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    everywhere = range(len(machine.gpus)) if request.config.getoption("--long") else None
    real = Machine(machine, monkeypatch)
    whole = real.readings(real.answers)
    expected, cases = spec(whole), 0
    for code, gpus in ((UNKNOWN, [0]), (LOST, [len(machine.gpus) - 1])):
        for failed, readings in real.with_one_failing_call(code, everywhere or gpus):
            cases += 1
            now = remembered(whole, readings)
            assert spec(now) == expected, failed
            assert remembered(now, whole) == whole  # and nothing is left of it
    assert cases > 2 * 18  # calls for each GPU, whatever it has


def machine_of(profile: str) -> Readings:
    return readings_of(load_profile(profile), "node-1")


def with_first(readings: Readings, **facts: Any) -> Readings:
    return replace(readings, gpus=(replace(readings.gpus[0], **facts), *readings.gpus[1:]))


H200 = machine_of("hgx-h200")
FAILED = {"name": "Unknown", "memory_bytes": "Timeout"}
NAMELESS = with_first(H200, name=None, memory_bytes=None, errors=FAILED)


def test_what_failed_is_as_it_was_read_last_and_the_error_stays() -> None:
    now = remembered(H200, NAMELESS)
    assert now == with_first(H200, errors=FAILED)
    assert remembered(now, NAMELESS) == now  # however often it fails


def test_what_is_read_differently_changes() -> None:
    changed = with_first(NAMELESS, minor=7)
    assert remembered(H200, changed).gpus[0] == replace(H200.gpus[0], minor=7, errors=FAILED)


@pytest.mark.parametrize(
    "another",
    [
        pytest.param(replace(NAMELESS, driver_version="999.1"), id="under another driver"),
        pytest.param(with_first(NAMELESS, uuid="GPU-other"), id="of another GPU in its place"),
        pytest.param(with_first(NAMELESS, mig_mode=(1, 1)), id="before a reset for MIG"),
    ],
)
def test_nothing_is_remembered(another: Readings) -> None:
    assert remembered(H200, another).gpus == another.gpus


def test_without_a_driver_version_it_is_the_same_driver() -> None:
    failed = replace(NAMELESS, driver_version=None, errors={"driver_version": "Unknown"})
    now = remembered(H200, failed)
    assert (now.driver_version, now.gpus[0].name) == (H200.driver_version, H200.gpus[0].name)


def test_a_gpu_that_moved_takes_what_is_known_of_it_with_it() -> None:
    moved = replace(
        H200, gpus=(replace(H200.gpus[1], index=0), replace(H200.gpus[0], index=1, name=None, errors=FAILED))
    )
    assert remembered(H200, moved).gpus[1].name == H200.gpus[0].name


def test_a_gpu_that_says_nothing_is_nobody_elses() -> None:
    silent = GpuReading(index=1, errors={"handle": "GpuIsLost"})
    moved = replace(H200, gpus=(replace(H200.gpus[1], index=0), silent))
    assert remembered(H200, moved).gpus[1] == silent  # what had this index is now at 0


@pytest.mark.parametrize("error", ["driver", "gpus"])
def test_where_nothing_can_be_read_everything_is_as_it_was(error: str) -> None:
    now = remembered(H200, replace(H200, gpus=(), pairs=(), driver_version=None, errors={error: "Unknown"}))
    assert (now.gpus, now.pairs, now.errors) == (H200.gpus, H200.pairs, {error: "Unknown"})


def test_no_gpus_that_were_counted_are_none() -> None:
    assert remembered(H200, replace(H200, gpus=(), pairs=())).gpus == ()


def test_how_a_gpu_is_stays_until_it_is_read_otherwise() -> None:
    ill = with_first(H200, health=HealthReading(rows_failed=True, uncorrected_ecc=2))
    errors = {"rows_failed": "Unknown"}
    unread = with_first(H200, health=HealthReading(uncorrected_ecc=3, errors=errors))
    assert remembered(ill, unread).gpus[0].health == HealthReading(rows_failed=True, uncorrected_ecc=3, errors=errors)
    silent = with_first(H200, health=None, errors={"handle": "Hung"})
    assert remembered(ill, silent).gpus[0].health == ill.gpus[0].health
    assert remembered(ill, H200).gpus[0].health is None


def test_mig_devices() -> None:
    devices = tuple(MigDeviceReading(uuid=f"MIG-{n}", name="NVIDIA H200 MIG 1g.18gb", memory_mib=16384) for n in "ab")
    whole = with_first(H200, mig_mode=(1, 1), mig_devices=devices)
    nameless = (replace(devices[0], uuid=None, errors={"uuid": "Unknown"}), devices[1])
    assert spec(remembered(whole, with_first(whole, mig_devices=nameless))) == spec(whole)
    fewer = with_first(whole, mig_devices=nameless[:1])  # one was destroyed: which, nobody knows
    assert remembered(whole, fewer).gpus[0].mig_devices == nameless[:1]
    failed = with_first(whole, mig_devices=(), errors={"mig_devices": "Unknown"})
    assert remembered(whole, failed).gpus[0].mig_devices == devices
    gone = with_first(whole, mig_devices=())
    assert remembered(whole, gone).gpus[0].mig_devices == ()


def test_links_that_are_gone_without_an_error_are_gone() -> None:
    fewer = with_first(H200, links=H200.gpus[0].links[:12])
    assert len(remembered(H200, fewer).gpus[0].links) == 12


def test_a_link_that_went_down_is_known_to_lead_where_it_led() -> None:
    whole = machine_of("dgx1-v100")
    dead = readings_of(load_profile("dgx1-v100"), "node-1", Faults(links_down=(LinkFault(0, 2), LinkFault(1, 3))))
    assert spec(dead) != spec(whole)  # two that are down at once could be anybody's
    now = remembered(whole, dead)
    assert spec(now) == spec(whole)
    assert discover(now, Method.NVML).links_down == discover(dead, Method.NVML).links_down


@pytest.mark.parametrize("profile", profile_names())
def test_a_lost_gpu_keeps_its_facts_and_its_neighbours_their_links(profile: str) -> None:
    whole = machine_of(profile)
    lost = len(whole.gpus) // 2
    now = remembered(whole, readings_of(load_profile(profile), "node-1", Faults(dead_gpus=(lost,))))
    found = discover(now, Method.NVML)
    assert found.spec == spec(whole)
    assert [gpu.index for gpu in found.gpus] == [lost]
    assert found.links_down == ()


def test_links_that_a_lost_gpu_did_not_come_to() -> None:
    links = H200.gpus[0].links
    lost = LinkReading(link=3, errors={"p2p": "GpuIsLost"})
    now = remembered(H200, with_first(H200, links=(*links[:3], lost), errors={"handle": "GpuIsLost"}))
    assert now.gpus[0].links == (*links[:3], replace(links[3], errors=lost.errors), *links[4:])


@pytest.mark.parametrize("profile", ["dgx1-v100", "hgx-h200", "pcie-bridges-8"])
def test_links_that_all_went_down_at_once_are_still_those_of_the_machine(profile: str) -> None:
    whole = machine_of(profile)
    dead = replace(whole, gpus=tuple(replace(gpu, links=tuple(map(silenced, gpu.links))) for gpu in whole.gpus))
    assert spec(dead).nvlink != spec(whole).nvlink
    now = remembered(whole, dead)
    found = discover(remembered(now, dead), Method.NVML)  # in the next reading, too
    assert found.spec == spec(whole)
    assert len(found.links_down) == sum(len(gpu.links) for gpu in whole.gpus)
    assert remembered(now, whole) == whole


@pytest.mark.parametrize("profile", ["ac922-4", "dgx1-v100", "hgx-h200"])
def test_a_link_that_is_down_and_of_unknown_type_leads_where_it_led(profile: str) -> None:
    """With the address of before and the type of now a CPU was a switch, and the mesh a machine with NVSwitches."""
    whole = machine_of(profile)
    errors = {"remote_bus_id": "NotSupported"}
    dead = [replace(each, state=0, remote_type=255, remote_bus_id=None, errors=errors) for each in whole.gpus[0].links]
    assert spec(remembered(whole, with_first(whole, links=tuple(dead)))) == spec(whole)


def test_a_link_of_which_one_call_fails_after_another_leads_into_no_switch() -> None:
    whole = machine_of("dgx1-v100")
    first, *others = whole.gpus[0].links
    last = None
    for failed in (
        replace(first, remote_bus_id=None, errors={"remote_bus_id": "Timeout"}),
        LinkReading(link=0, errors={"p2p": "Unknown"}),
    ):
        last = remembered(last, with_first(whole, links=(failed, *others)))
        assert not spec(last).nvlink.switched


def silenced(link: LinkReading) -> LinkReading:
    errors = dict.fromkeys(["remote_bus_id", "remote_type", "version"], "InvalidArgument")
    return LinkReading(link=link.link, p2p=link.p2p, state=0, speed_mb_s=0, errors=errors)
