"""Machines that were dumped earlier, here or elsewhere."""

from collections.abc import Sequence
from pathlib import Path

from closeknit.agent.discovery.readings.activity import LiveGpu
from closeknit.agent.discovery.readings.byte_counters import NO_TRAFFIC, ByteCounters
from closeknit.agent.discovery.readings.dump import decode
from closeknit.agent.discovery.readings.readings import Readings
from closeknit.agent.sources.source import SourceError, read_bytes
from closeknit.api.nodetopology import Method


class RecordedSource:
    """A machine that was dumped earlier."""

    method = Method.RECORDED

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Readings:
        """The readings of the dump file. Raises SourceError."""
        try:
            return decode(read_bytes(self._path))
        except (OSError, ValueError) as error:
            raise SourceError(f"cannot read the dump {self._path}: {error}") from error

    def live(self) -> tuple[LiveGpu, ...]:
        """None: a recording does nothing."""
        return ()

    def traffic(self, gpus: Sequence[str]) -> ByteCounters:  # noqa: ARG002 -- it is the protocol's
        """None, as well."""
        return NO_TRAFFIC
