"""Memory of bounded size for what is worked out."""

from collections.abc import Hashable
from typing import TypeVar

MANY_KEPT = 1 << 17  # of anything, twice the sets of 16 GPUs: any user may ask for any least bandwidth

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Bounded(dict[K, V]):
    """What was worked out, until it is too much: then all of it is forgotten."""

    __slots__ = ()

    def __setitem__(self, key: K, value: V) -> None:
        if len(self) >= MANY_KEPT:
            self.clear()
        super().__setitem__(key, value)
