"""What an agent reads from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from closeknit.agent.discovery.readings.activity import LiveGpu
from closeknit.agent.discovery.readings.byte_counters import ByteCounters
from closeknit.agent.discovery.readings.readings import Readings
from closeknit.api.nodetopology import Method

MAX_FILE_BYTES = 16 << 20  # the dump of 8 H200s has 37 KB, a fleet file of 40,000 nodes 5 MB


class SourceError(Exception):
    """A machine that cannot be read at all; the message is one line for a person."""


class Source(Protocol):
    """Where readings come from: NVML and sysfs, a dump file, or a simulated machine."""

    method: Method

    def read(self) -> Readings:
        """The machine as it is now. Raises SourceError."""
        ...

    def live(self) -> Sequence[LiveGpu]:
        """What the GPUs do at this moment, after at most some seconds; those that do not answer are left out."""
        ...

    def traffic(self, gpus: Sequence[str]) -> ByteCounters:
        """The counters of what has moved: over the NVLinks of these GPUs, by uuid, and otherwise of all that the last
        reading told of. What does not answer is left out.
        """
        ...


def read_bytes(file: Path) -> bytes:
    """What is in a dump or fleet file. Raises OSError, and ValueError for one that is larger than any of them."""
    with file.open("rb") as opened:
        content = opened.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"it is larger than {MAX_FILE_BYTES >> 20} MiB")
    return content
