"""Machines that were dumped earlier, here or elsewhere."""

from pathlib import Path

from closeknit.agent.discovery.dump import decode
from closeknit.agent.discovery.readings import Readings
from closeknit.agent.source import SourceError
from closeknit.api.nodetopology import Method


class RecordedSource:
    """A machine that was dumped earlier."""

    method = Method.RECORDED

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Readings:
        """The readings of the dump file. Raises SourceError."""
        try:
            return decode(self._path.read_bytes())
        except (OSError, ValueError) as error:
            raise SourceError(f"cannot read the dump {self._path}: {error}") from error
