"""An open session with the driver, and the questions that it answers."""

from contextlib import suppress
from typing import Any

import pynvml

from closeknit.agent.discovery.readings.readings import GpuReading, PairReading
from closeknit.agent.nvml import current_use, gpu_state, gpu_static, links
from closeknit.agent.nvml.checked_calls import ask, word
from closeknit.agent.nvml.events import Events
from closeknit.agent.nvml.nvml_messages import (
    MAX_GPUS,
    NOT_A_NUMBER,
    Answer,
    AskEvents,
    AskGpu,
    AskLive,
    AskPairs,
    AskPulse,
    AskSent,
    AskSurvey,
    Pulse,
    Question,
    Sent,
    Survey,
)


class NvmlSession:
    """Opened by the first survey, and again by the next one after the driver has failed. One thread at a time."""

    def __init__(self) -> None:
        self._is_open = False
        self._handles: dict[int, Any] = {}
        self._capabilities: dict[int, tuple[int, int]] = {}
        self._events = Events()

    def answer(self, question: Question) -> Answer:
        """The answer to a question; what NVML refuses is part of it."""
        match question:
            case AskSurvey():
                return self.survey()
            case AskGpu(index):
                return self.gpu(index)
            case AskPairs(index, others):
                return self.pairs(index, others)
            case AskPulse(index, wanted, counts):
                return self.pulse(index, wanted, counts=counts)
            case AskEvents():
                return self._events.since_last_asked()
            case AskLive(index):
                return current_use.live(index, self._handle(index, {}))
            case AskSent(index):
                return Sent(links.sent_kib(self._handle(index, {})))

    def survey(self) -> Survey:
        """Which driver is there, and how many GPUs. It asks no GPU: one that hangs must not hide the others."""
        errors: dict[str, str] = {}
        if not self._is_open:
            try:
                pynvml.nvmlInit()
            except pynvml.NVMLError as error:
                return Survey(errors={"driver": word(error)})
            self._is_open = True
        driver_version = ask(errors, "driver_version", pynvml.nvmlSystemGetDriverVersion)
        cuda_version = ask(errors, "cuda_version", pynvml.nvmlSystemGetCudaDriverVersion)
        count = ask(errors, "gpus", pynvml.nvmlDeviceGetCount)
        if count is not None and count > MAX_GPUS:  # no such machine: to ask them all would take hours
            errors["gpus"], count = NOT_A_NUMBER, None
        if count is None:
            self.close()
        return Survey(driver_version=driver_version, cuda_version=cuda_version, gpus=count or 0, errors=errors)

    def gpu(self, index: int) -> GpuReading:
        """All facts of one GPU."""
        errors: dict[str, str] = {}
        handle = self._handle(index, errors)
        reading = GpuReading(index=index, errors=errors) if handle is None else gpu_static.gpu(index, handle)
        if "handle" in reading.errors:
            self._handles.pop(index, None)
        else:
            self._events.watch(index, handle)
        return reading

    def pairs(self, index: int, others: tuple[int, ...]) -> tuple[PairReading, ...]:
        """A GPU and each of these others, which answered when they were asked last."""
        found = {each: self._handles.get(each) or self._handle(each, {}) for each in (index, *others)}
        if found[index] is None:
            return ()
        present = [other for other in others if found[other] is not None]
        return tuple(gpu_static.pair(index, other, found[index], found[other]) for other in present)

    def pulse(self, index: int, wanted: tuple[int, ...], *, counts: bool) -> Pulse:
        """How a GPU is, and these links of it; with `counts`, also what takes long to count."""
        errors: dict[str, str] = {}
        handle = self._handle(index, errors)
        if handle is None:
            return Pulse(links=(None,) * len(wanted), errors=errors)
        if index not in self._capabilities:
            capability = ask({}, "capability", pynvml.nvmlDeviceGetCudaComputeCapability, handle)
            if capability is not None:
                self._capabilities[index] = (capability[0], capability[1])
        self._events.watch(index, handle)
        return gpu_state.pulse(handle, self._capabilities.get(index), wanted, counts=counts)

    def close(self) -> None:
        """Ends the session; its handles are no longer valid."""
        self._handles = {}
        self._capabilities = {}
        self._events = Events()
        self._is_open = False
        with suppress(pynvml.NVMLError):  # a driver that is gone has nothing to end
            pynvml.nvmlShutdown()

    def _handle(self, index: int, errors: dict[str, str]) -> Any:
        handle = ask(errors, "handle", pynvml.nvmlDeviceGetHandleByIndex, index)
        if handle is None:
            self._handles.pop(index, None)
        else:
            self._handles[index] = handle
        return handle
