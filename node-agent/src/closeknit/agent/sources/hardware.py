"""The machine that this process runs on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Protocol, TypeVar

from msgspec.structs import replace

from closeknit.agent import sysfs
from closeknit.agent.discovery.readings.activity import LiveGpu
from closeknit.agent.discovery.readings.byte_counters import NO_TRAFFIC, ByteCounters
from closeknit.agent.discovery.readings.readings import (
    DRIVER_FACTS,
    GpuReading,
    PairReading,
    RdmaReading,
    Readings,
    XidReading,
)
from closeknit.agent.nvml.gpu_refresh import Identity, beating, has_failed, is_due, is_silent, with_counts
from closeknit.agent.nvml.nvml_client import NoAnswer, NvmlClient
from closeknit.agent.nvml.nvml_messages import (
    AskEvents,
    AskGpu,
    AskLive,
    AskPairs,
    AskPulse,
    AskSent,
    AskSurvey,
    DriverQuestion,
    Pulse,
    Sent,
    Survey,
)
from closeknit.api.nodetopology import Method

OPEN_S = 60.0  # a driver without persistence mode starts each GPU first, some seconds for each
ANSWER_S = 3.0  # all of a GPU with 18 links takes some 10 ms; a driver that is busy with another one, a second
# Between two counts of the errors of links, which matter as a rate over 10 min. Those of 8 H200 take 112 ms of a core
# (docs/measurements/2026-11-22-agent-calls-on-h200.md), so 0.04% of it; a link that goes down is seen in each reading.
COUNT_S = 300.0
MAX_PIDS = 4  # programs of one GPU that are tried
SURROUNDINGS_S = 60.0  # between two readings of PCI devices and of the kernel's files
# A GPU that did not answer is left alone, each time for twice as long: asking it costs the session with the others.
SILENT_S = (60.0, 600.0)
# GPUs that fall silent in one reading until the driver hangs rather than its GPUs; a reading that waits for each of
# them in turn would take minutes.
MAX_SILENCES = 2
CLOSED = {"driver", "gpus"}  # errors of a survey after which no driver answers

T = TypeVar("T")


class Driver(Protocol):
    """Whom the questions go to."""

    @property
    def is_open(self) -> bool:
        """Whether it answered before; opening it may take long."""
        ...

    def ask(self, question: DriverQuestion[T], deadline_s: float) -> T:
        """The answer. Raises NoAnswer."""
        ...


@dataclass(frozen=True, slots=True)
class _Silence:
    """A GPU that did not answer: why, and until when on the monotonic clock it is not asked."""

    error: str
    until: float
    length_s: float


class _Closed(Exception):  # noqa: N818 -- it ends a reading, which tells why
    """The driver cannot be used: what it said of itself, and the GPU that was asked last, where that is why."""

    def __init__(self, survey: Survey, suspect: int | None) -> None:
        super().__init__()
        self.survey = survey
        self.suspect = suspect


class HardwareSource:
    """NVML for the GPUs, sysfs and procfs below `root` for what is around them."""

    method = Method.NVML

    def __init__(self, root: Path, driver: Driver | None = None) -> None:
        self._root = root
        self._driver = driver or NvmlClient()
        self._identity: Identity | None = None
        self._around: Readings | None = None  # without its RDMA devices
        self._around_at = 0.0
        self._rdma: tuple[RdmaReading, ...] = ()
        self._silences: dict[int, _Silence] = {}  # by index
        self._last_pulses: dict[int, Pulse] = {}
        self._counted_at = -COUNT_S
        self._suspect: int | None = None  # the GPU that was asked when the session was lost
        self._fallen_silent = 0  # GPUs that did so in this reading
        self._has_retried = False  # whether one that was silent was asked again in this reading

    def read(self) -> Readings:
        """The machine as it is now; what cannot be read is part of it. A driver that failed is reopened."""
        around = self._surroundings()
        self._fallen_silent, self._has_retried = 0, False
        try:
            survey = self._survey()
            identity = self._identity
            pulses = {} if identity is None else self._pulses(identity)
            is_open = self._driver.is_open
            if identity is None or (is_open and is_due(identity, survey, pulses, monotonic() - identity.read_at)):
                identity = self._identity = self._identified(survey)
                self._last_pulses = {}
                pulses = self._pulses(identity)
            xids = self._events()
        except _Closed as closed:
            self._identity = None
            return replace(_of_driver(around, closed.survey), suspect=closed.suspect)
        return replace(
            _of_driver(around, survey),
            gpus=tuple(beating(gpu, pulses[gpu.index]) for gpu in identity.gpus),
            pairs=identity.pairs,
            xids=xids,
        )

    def _surroundings(self) -> Readings:
        """What is around the GPUs. A port goes down at any time; devices and the kernel's files change rarely, and a
        machine has up to 1,500 of them."""
        if self._around is None or monotonic() - self._around_at >= SURROUNDINGS_S:
            errors: dict[str, str] = {}
            pci, kernel = sysfs.pci_devices(self._root, errors), sysfs.kernel(self._root)
            self._around = Readings(pci=pci, lists_capture_cards="pci" not in errors, kernel=kernel, errors=errors)
            self._around_at = monotonic()
        errors = dict(self._around.errors)
        self._rdma = sysfs.rdma_devices(self._root, errors)
        return replace(self._around, rdma=self._rdma, errors=errors)

    def live(self) -> tuple[LiveGpu, ...]:
        """What the GPUs do at this moment; those that do not answer are left out, and told by the next reading."""
        identity, until = self._identity, monotonic() + ANSWER_S
        found = []
        for gpu in identity.gpus if identity is not None and self._driver.is_open else ():
            if gpu.index in self._silences:
                continue
            try:
                found.append(self._driver.ask(AskLive(gpu.index), until - monotonic()))
            except NoAnswer:
                break
        return tuple(found)

    def traffic(self, gpus: Sequence[str]) -> ByteCounters:
        """See `Source.traffic`. A GPU that does not answer is told by the next reading."""
        identity, until = self._identity, monotonic() + ANSWER_S
        if identity is None:
            return NO_TRAFFIC
        nvlink: dict[str, int] = {}
        sockets: dict[str, dict[str, int]] = {}
        for gpu in identity.gpus:
            if gpu.uuid is None or gpu.uuid not in gpus or not gpu.links or gpu.index in self._silences:
                continue
            try:
                sent = self._driver.ask(AskSent(gpu.index), until - monotonic()) if self._driver.is_open else Sent()
            except NoAnswer:
                break
            if sent.kib is not None:
                nvlink[gpu.uuid] = sent.kib << 10
        for gpu in identity.gpus:
            pulse = self._last_pulses.get(gpu.index)
            # Programs of one container are in one network; the first may have ended since.
            for pid in ((pulse and pulse.health.pids) or ())[:MAX_PIDS]:
                interfaces = sysfs.interface_bytes(self._root, pid)
                if gpu.uuid is not None and interfaces is not None:
                    sockets[gpu.uuid] = interfaces
                    break
        return ByteCounters(nvlink, sysfs.rdma_bytes(self._root, self._rdma), sockets)

    def _identified(self, survey: Survey) -> Identity:
        gpus = tuple(self._gpu(index) for index in range(survey.gpus))
        answered = [gpu.index for gpu in gpus if "handle" not in gpu.errors]
        pairs = tuple(pair for index in answered for pair in self._pairs(index, answered))
        return Identity(survey, gpus, pairs, monotonic())

    def _pulses(self, identity: Identity) -> dict[int, Pulse]:
        counts = monotonic() - self._counted_at >= COUNT_S
        self._last_pulses = {gpu.index: self._pulse(gpu, counts) for gpu in identity.gpus}
        if counts:
            self._counted_at = monotonic()
        return self._last_pulses

    def _pulse(self, gpu: GpuReading, counts: bool) -> Pulse:
        if gpu.index in self._last_pulses and not self._driver.is_open:
            # Another GPU has just cost the session. That is news, and a driver may take long to open: the others are as
            # they were some seconds ago.
            return self._last_pulses[gpu.index]
        links = tuple(link.link for link in gpu.links if link.p2p)
        last = None if counts else self._last_pulses.get(gpu.index)
        answer = self._asked(gpu.index, AskPulse(gpu.index, links, counts=last is None))
        if isinstance(answer, str):
            return Pulse(errors={"handle": answer})
        if is_silent(answer):  # one call that fails is no illness yet
            answer = self._twice(AskPulse(gpu.index, links, counts=last is None), answer)
        return answer if last is None else with_counts(last, answer)

    def _events(self) -> tuple[XidReading, ...]:
        try:
            return self._driver.ask(AskEvents(), ANSWER_S) if self._driver.is_open else ()
        except NoAnswer:
            return ()

    def _survey(self) -> Survey:
        """The driver, opened if it is not open. Raises _Closed."""
        try:
            survey = self._driver.ask(AskSurvey(), ANSWER_S if self._driver.is_open else OPEN_S)
        except NoAnswer as error:
            raise _Closed(Survey(errors={"driver": str(error)}), self._suspect) from error
        if survey.errors.keys() & CLOSED:
            survey = self._twice(AskSurvey(), survey, OPEN_S)
        if survey.errors.keys() & CLOSED:
            raise _Closed(survey, self._suspect)
        self._suspect = None
        if self._identity is None and has_failed(survey):
            survey = self._twice(AskSurvey(), survey)
        return survey

    def _twice(self, question: DriverQuestion[T], answer: T, deadline_s: float = ANSWER_S) -> T:
        """The answer of a second try, where the first had a failed call: an agent's first reading has nothing before it
        that could stand in for what failed, and would change the spec; and one failed call makes no GPU or driver ill.
        The first one, where there is no second.
        """
        try:
            return self._driver.ask(question, deadline_s)
        except NoAnswer:
            return answer  # told by the next question

    def _gpu(self, index: int) -> GpuReading:
        answer = self._asked(index, AskGpu(index))
        if isinstance(answer, str):
            return GpuReading(index=index, errors={"handle": answer})
        return self._twice(AskGpu(index), answer) if has_failed(answer) else answer

    def _pairs(self, index: int, answered: list[int]) -> tuple[PairReading, ...]:
        question = AskPairs(index, tuple(other for other in answered if other > index))
        answer = self._asked(index, question)
        if isinstance(answer, str):
            return ()
        is_half_read = len(answer) < len(question.others) or any(map(has_failed, answer))
        return self._twice(question, answer) if is_half_read else answer

    def _asked(self, index: int, question: DriverQuestion[T]) -> T | str:
        """What a GPU answers, or why it does not. Raises _Closed where the driver no longer answers."""
        silence = self._silences.get(index)
        if silence is not None:
            if self._has_retried or monotonic() < silence.until:
                return silence.error
            self._has_retried = True
        if not self._driver.is_open:  # another GPU has cost the session
            self._survey()
        try:
            answer = self._driver.ask(question, ANSWER_S)
        except NoAnswer as error:
            shortest_s, longest_s = SILENT_S
            length_s = shortest_s if silence is None else min(2 * silence.length_s, longest_s)
            self._silences[index] = _Silence(str(error), monotonic() + length_s, length_s)
            self._fallen_silent += silence is None
            if self._fallen_silent >= MAX_SILENCES:
                raise _Closed(Survey(errors={"driver": str(error)}), index) from error
            self._suspect = index
            return str(error)
        self._silences.pop(index, None)
        return answer


def _of_driver(around: Readings, survey: Survey) -> Readings:
    """What the driver says of itself, beside what is around the GPUs."""
    facts = {fact: getattr(survey, fact) for fact in DRIVER_FACTS}
    return replace(around, **facts, errors=around.errors | survey.errors)
