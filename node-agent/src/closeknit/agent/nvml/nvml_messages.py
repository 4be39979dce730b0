"""What is asked of an NVML session, and what it answers: plain values, which also travel between two processes."""

from typing import Generic, TypeVar

import msgspec

from closeknit.agent.discovery.readings.activity import LiveGpu
from closeknit.agent.discovery.readings.readings import (
    DriverReading,
    FabricReading,
    GpuReading,
    HealthReading,
    PairReading,
    XidReading,
)

LOST = "GpuIsLost"
# What a driver says of a fact that it does not know, or that this GPU has not. Any other error is a failure.
ABSENT = ("NotSupported", "FunctionNotFound", "InvalidArgument", "ArgumentVersionMismatch")
# What an answer is that says nothing: bytes that are no text, a number that stands for "unknown", and one that is none.
NOT_TEXT, NOT_KNOWN, NOT_A_NUMBER = NOTHING_SAID = ("NotText", "NotKnown", "NotANumber")

MAX_GPUS = 64  # of one machine, as many as a NodeTopology holds
MAX_BYTES = 4 << 20  # of an answer; all of a GPU with 36 links has 10 KB
LENGTH_BYTES = 4  # before each message

T_co = TypeVar("T_co", covariant=True)


class DriverQuestion(msgspec.Struct, Generic[T_co], frozen=True, tag=True):
    """Base of all questions, by the type of the answer. Each costs a bounded number of calls, mostly on one GPU."""


class Survey(DriverReading, frozen=True):
    """The driver, and how many GPUs it counts. `errors`: what could not be asked, to NVML's name of the error.

    An error under `driver` means that the driver cannot be opened; one under `gpus`, that it does not count its GPUs.
    """

    gpus: int = 0
    errors: dict[str, str] = {}


class AskSurvey(DriverQuestion[Survey], frozen=True):
    """Which driver and how many GPUs are there? Opens the driver if it is not open."""


class AskGpu(DriverQuestion[GpuReading], frozen=True):
    """All facts of one GPU."""

    index: int


class AskPairs(DriverQuestion[tuple[PairReading, ...]], frozen=True):
    """A GPU and each of these others, which come after it; all answered when they were asked last."""

    index: int
    others: tuple[int, ...]


class Pulse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a GPU is: the states of the links that were asked for, in their order, and what `errors` do not leave out."""

    uuid: str | None = None
    links: tuple[int | None, ...] = ()
    fabric: FabricReading | None = None
    health: HealthReading = HealthReading()
    errors: dict[str, str] = {}


class AskPulse(DriverQuestion[Pulse], frozen=True):
    """How is a GPU, and these links of it?"""

    index: int
    links: tuple[int, ...]
    counts: bool
    """Also how many errors its links had: five times as dear as all the rest."""


class AskEvents(DriverQuestion[tuple[XidReading, ...]], frozen=True):
    """Which XIDs were there since the last time, of the GPUs that were asked for anything?"""


class AskLive(DriverQuestion[LiveGpu], frozen=True):
    """What does a GPU do at this moment?"""

    index: int


class Sent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a GPU has sent over all of its NVLinks; None where it does not say."""

    kib: int | None = None


class AskSent(DriverQuestion[Sent], frozen=True):
    """How much has a GPU sent over its NVLinks?"""

    index: int


Question = AskSurvey | AskSent | AskGpu | AskPairs | AskPulse | AskEvents | AskLive
Answer = Survey | GpuReading | Pulse | LiveGpu | Sent | tuple[PairReading, ...] | tuple[XidReading, ...]
ANSWERS = {
    AskSurvey: Survey,
    AskGpu: GpuReading,
    AskPairs: tuple[PairReading, ...],
    AskPulse: Pulse,
    AskEvents: tuple[XidReading, ...],
    AskLive: LiveGpu,
    AskSent: Sent,
}


def framed(message: object) -> bytes:
    """The message with its length before it, as it travels through a pipe."""
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body
