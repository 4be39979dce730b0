"""What is asked of an NVML session, and what it answers: plain values, which also travel between two processes."""

from typing import TypeAlias

import msgspec


class Ask(msgspec.Struct, frozen=True, tag=True):
    """Base of all questions. Each costs a bounded number of calls, on one GPU wherever that is possible."""


class AskSurvey(Ask, frozen=True):
    """Which driver and which GPUs are there? Opens the driver if it is not open."""


class AskGpu(Ask, frozen=True):
    """All facts of one GPU: a GpuReading."""

    index: int


class AskPairs(Ask, frozen=True):
    """A GPU and each of those after it: PairReadings, of GPUs that both answer."""

    index: int


Question: TypeAlias = AskSurvey | AskGpu | AskPairs


class Survey(msgspec.Struct, frozen=True):
    """The driver, and the uuids of its GPUs by index. `errors`: what could not be asked, to NVML's name of the error.

    An error under `driver` means that the driver cannot be opened; one under `gpus`, that it does not count its GPUs.
    """

    driver_version: str | None = None
    cuda_version: int | None = None
    uuids: tuple[str | None, ...] = ()
    errors: dict[str, str] = {}
