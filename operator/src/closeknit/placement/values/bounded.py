"""Memory of bounded size for what is worked out."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

MANY_KEPT = 1 << 17  # of anything, twice the sets of 16 GPUs: any user may ask for any least bandwidth
AT_ONCE = 64  # so small a part more is forgotten: a dict goes through all that it has lost to find its first key

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_UNKNOWN: Any = object()


class Bounded(dict[K, V]):
    """What was worked out. Where it is too much, what was put in first is forgotten first.

    The key has to name all that the value rests on.
    """

    __slots__ = ("_most", "_weigh", "_weight")

    def __init__(self, most: int | None = None, weigh: Callable[[K, V], int] | None = None) -> None:
        """So many values, MANY_KEPT where nothing is said, that together weigh no more than that."""
        super().__init__()
        self._most = MANY_KEPT if most is None else most
        self._weigh = weigh
        self._weight = 0

    def __setitem__(self, key: K, value: V) -> None:
        if self._weigh is not None:
            self._weight += self._weigh(key, value) - (self._weigh(key, self[key]) if key in self else 0)
        super().__setitem__(key, value)
        self._forget()

    def use(self, key: K) -> V | None:
        """The value of a key, None where it is not known; as if it were put in now."""
        value: V | None = self.pop(key, None)
        if value is not None:
            super().__setitem__(key, value)
        return value

    def kept(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key, made where it is not known; as if it were put in now."""
        value: V = self.pop(key, _UNKNOWN)
        if value is _UNKNOWN:
            value = self[key] = make()
        else:
            super().__setitem__(key, value)
        return value

    def limit(self, most: int) -> None:
        """From now on it is so much at most."""
        self._most = most
        self._forget()

    def _forget(self) -> None:
        """Goes down to what may be kept; the newest value always is."""
        if self._size() <= self._most:
            return
        for key in [*self][:-1]:
            value = self.pop(key)
            if self._weigh is not None:
                self._weight -= self._weigh(key, value)
            if self._size() <= self._most - self._most // AT_ONCE:
                break

    def _size(self) -> int:
        return max(len(self), self._weight)
