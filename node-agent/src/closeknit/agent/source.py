"""What an agent reads from."""

from typing import Protocol

from closeknit.agent.discovery.readings import Readings
from closeknit.api.nodetopology import Method


class SourceError(Exception):
    """A machine that cannot be read at all; the message is one line for a person."""


class Source(Protocol):
    """Where readings come from: NVML and sysfs, a dump file, or a simulated machine."""

    method: Method

    def read(self) -> Readings:
        """The machine as it is now. Raises SourceError."""
        ...
