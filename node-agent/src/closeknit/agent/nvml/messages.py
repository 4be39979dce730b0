"""What is asked of an NVML session, and what it answers: plain values, which also travel between two processes."""

from typing import Generic, TypeVar

import msgspec

from closeknit.agent.discovery.readings import GpuReading, PairReading

MAX_BYTES = 4 << 20  # of an answer; all of a GPU with 36 links has 10 KB
LENGTH_BYTES = 4  # before each message

T_co = TypeVar("T_co", covariant=True)


class Ask(msgspec.Struct, Generic[T_co], frozen=True, tag=True):
    """Base of all questions, by the type of the answer. Each costs a bounded number of calls, mostly on one GPU."""


class Survey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The driver, and how many GPUs it counts. `errors`: what could not be asked, to NVML's name of the error.

    An error under `driver` means that the driver cannot be opened; one under `gpus`, that it does not count its GPUs.
    """

    driver_version: str | None = None
    cuda_version: int | None = None
    gpus: int = 0
    errors: dict[str, str] = {}


class AskSurvey(Ask[Survey], frozen=True):
    """Which driver and how many GPUs are there? Opens the driver if it is not open."""


class AskGpu(Ask[GpuReading], frozen=True):
    """All facts of one GPU."""

    index: int


class AskPairs(Ask[tuple[PairReading, ...]], frozen=True):
    """A GPU and each of these others, which come after it; all answered when they were asked last."""

    index: int
    others: tuple[int, ...]


Question = AskSurvey | AskGpu | AskPairs
ANSWERS = {AskSurvey: Survey, AskGpu: GpuReading, AskPairs: tuple[PairReading, ...]}


def framed(message: object) -> bytes:
    """The message with its length before it, as it travels through a pipe."""
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body
