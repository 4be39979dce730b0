"""The nodes of a cluster by what placement asks of them. A stand-in: nothing is grown yet."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from closeknit.cluster.node import NodeView


@dataclass(frozen=True, slots=True)
class Forest:
    """Nothing yet."""

    @classmethod
    def of(cls, _levels: tuple[str, ...], _views: Iterable[NodeView]) -> Self:
        """The forest of these nodes."""
        return cls()

    def after(self, _pairs: Iterable[tuple[NodeView | None, NodeView | None]]) -> Self:
        """The forest after some nodes have changed, given as old and new view."""
        return self
