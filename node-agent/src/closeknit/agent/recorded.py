"""Machines that were dumped earlier, here or elsewhere."""

from collections.abc import Sequence
from pathlib import Path

from closeknit.agent.discovery.dump import decode
from closeknit.agent.discovery.live import LiveGpu
from closeknit.agent.discovery.readings import Readings
from closeknit.agent.discovery.traffic import NO_TRAFFIC, Traffic
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

    def traffic(self, gpus: Sequence[str]) -> Traffic:  # noqa: ARG002 -- it is the protocol's
        """None, as well."""
        return NO_TRAFFIC
