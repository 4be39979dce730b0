"""Tables of objects by their own key, with indexes by others. They are declared in store/table_definitions.py."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from immutables import Map

K = TypeVar("K", bound=Any)
V = TypeVar("V")
F = TypeVar("F", bound=Any)
M = TypeVar("M")
EMPTY: Map[Any, Any] = Map()
ObjectKey = tuple[str, str]
"""Namespace, empty for cluster-scoped kinds, and name."""


@dataclass(frozen=True, eq=False)  # no slots: what a generic class is called with is noted on its objects
class Index(Generic[K, V, F, M]):
    """Files what a table keeps under other keys. Under each key its members are a tuple in their order."""

    files: Callable[[K, V], Iterable[tuple[F, M]]]
    """What one object files, and under which key."""
    order: Callable[[M], Any]
    """Tells the members of one key apart, and sorts them."""
    is_by_node: bool = False
    """Whether the key is a node's name, so that the node's view changes with what is filed under it."""


class Reader(Protocol):
    """All tables and indexes at one moment."""

    def all(self, table: "Table[K, V]") -> Map[K, V]:
        """What a table keeps."""

    def under(self, index: Index[Any, Any, F, M], key: F) -> tuple[M, ...]:
        """What an index has filed under one key, in its order."""


def _touches_none(_reader: Reader, _value: Any) -> Iterable[str]:
    return ()


def _tells_apart(_before: Any, _now: Any) -> bool:
    return False


@dataclass(frozen=True, eq=False)  # no slots: what a generic class is called with is noted on its objects
class Table(Generic[K, V]):
    """Keeps one thing of each object of a stream."""

    key: Callable[[ObjectKey], K]
    of: Callable[[Any], V | None]
    """What is kept of an object; None: nothing."""
    indexes: tuple[Index[K, V, Any, Any], ...] = ()
    is_by_node: bool = False
    """Whether the key is a node's name, so that the node's view changes with the object."""
    touches: Callable[[Reader, V], Iterable[str]] = _touches_none
    """Nodes whose views change with the object though nothing is filed under their names."""
    looks_alike: Callable[[V, V], bool] = _tells_apart
    """Whether two states of one object are the same to every node's view, so that none is derived again."""


def by_name(key: ObjectKey) -> str:
    """Key of a cluster-scoped object."""
    return key[1]


def by_key(key: ObjectKey) -> ObjectKey:
    """Key of an object by namespace and name."""
    return key
