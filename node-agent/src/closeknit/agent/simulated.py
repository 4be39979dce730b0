"""Simulated machines, for demos and tests without GPUs."""

from closeknit.agent.profile import NO_FAULTS, Faults, Profile, ProfileError, readings_of
from closeknit.agent.readings import Readings, SourceError
from closeknit.api.nodetopology import Method


class SimulatedSource:
    """A machine of a profile, with faults if wanted."""

    method = Method.SIMULATED

    def __init__(self, profile: Profile, node: str, faults: Faults = NO_FAULTS) -> None:
        self._profile = profile
        self._node = node
        self._faults = faults

    def read(self) -> Readings:
        """The same readings every time. Raises SourceError for faults that the machine cannot have."""
        try:
            return readings_of(self._profile, self._node, self._faults)
        except ProfileError as error:
            raise SourceError(f"node {self._node}: {error}") from error
