"""Expert groups inside one node, and which of them NVLink does not join."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from closeknit.api.trainingjob import NvlinkPolicy
from closeknit.machine.graph import Machine
from closeknit.machine.islands import islands
from closeknit.placement.values.request import Request


class Experts(NamedTuple):
    """The expert groups of a share: among each `span` consecutive local ranks those that are `tensor` apart."""

    tensor: int = 1
    ranks: int = 1
    """Ranks of one expert group; 1 where no group could lie in one NVLink island."""

    @property
    def span(self) -> int:
        """Consecutive ranks that make up whole expert groups."""
        return self.tensor * self.ranks

    def torn(self, machine: Machine, positions: Sequence[int]) -> int:
        """How many groups lie on several NVLink islands; positions by local rank, whole spans of them."""
        return sum(len(islands(machine, group)) > 1 for group in self._of(positions))

    def _of(self, positions: Sequence[int]) -> Iterator[Sequence[int]]:
        for first in range(0, len(positions), self.span):
            span = positions[first : first + self.span]
            yield from (span[offset :: self.tensor] for offset in range(self.tensor))


NO_EXPERTS = Experts()


def experts_on_nodes(request: Request, kept: int) -> Experts:
    """The expert groups of a gang, where they are whole on one node and NVLink matters; else NO_EXPERTS.

    Each `kept` ranks that follow each other stay on one node.
    """
    experts = Experts(request.tensor, request.expert)
    if request.expert == 1 or kept % experts.span or request.nvlink is NvlinkPolicy.IGNORED:
        return NO_EXPERTS
    return experts
