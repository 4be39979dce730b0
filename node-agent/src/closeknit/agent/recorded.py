"""Machines that were dumped earlier, here or elsewhere."""

from pathlib import Path

from closeknit.agent.discovery.dump import decode
from closeknit.agent.discovery.live import LiveGpu
from closeknit.agent.discovery.readings import Readings
from closeknit.agent.source import SourceError, read_bytes
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
