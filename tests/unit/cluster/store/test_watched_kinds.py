"""A new kind of object is one entry."""

from dataclasses import dataclass
from typing import Any, cast

import pytest

from closeknit.cluster.immutable.table import Index, Table, by_key
from closeknit.cluster.store import watched_kinds
from closeknit.cluster.store.next_version import after
from closeknit.cluster.store.object_store import ObjectTables
from closeknit.cluster.store.watched_kinds import KINDS, Kind, ObjectChange, Stream


@dataclass(frozen=True)
class Volume:
    name: str
    node: str


VOLUMES_ON = Index[tuple[str, str], Volume, str, Volume](
    lambda _, volume: ((volume.node, volume),), lambda volume: volume.name, is_by_node=True
)
VOLUMES = Table[tuple[str, str], Volume](by_key, lambda volume: volume, (VOLUMES_ON,))


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    """The stream of a kind that nothing else knows."""

    def unread(_: object) -> None:
        return None

    name = cast(Stream, "volumes")
    entry = Kind(name, "", "v1", "volumes", "Volume", True, unread, unread, by_key, (Volume,), (VOLUMES,))
    monkeypatch.setitem(cast(dict[Stream, Kind], watched_kinds.BY_STREAM), name, entry)
    return name


def volume(stream: Stream, name: str, node: str | None) -> ObjectChange:
    return ObjectChange(stream, ("ml", name), cast(Any, Volume(name, node)) if node else None)


def test_an_entry_is_all_that_a_kind_needs_to_be_kept_and_filed(stream: Stream) -> None:
    batch = [volume(stream, "b", "gpu-1"), volume(stream, "a", "gpu-1"), volume(stream, "c", "gpu-2")]
    first, touched = after(ObjectTables(), batch, None)
    assert touched == {"gpu-1", "gpu-2"}
    assert [entry.name for entry in first.under(VOLUMES_ON, "gpu-1")] == ["a", "b"]
    second, touched = after(first, [volume(stream, "b", "gpu-3"), volume(stream, "c", None)], None)
    assert touched == {"gpu-1", "gpu-2", "gpu-3"}
    assert dict(second.all(VOLUMES)) == {("ml", "a"): Volume("a", "gpu-1"), ("ml", "b"): Volume("b", "gpu-3")}
    assert [second.under(VOLUMES_ON, f"gpu-{number}") for number in (1, 2, 3)] == [
        (Volume("a", "gpu-1"),),
        (),
        (Volume("b", "gpu-3"),),
    ]
    assert [entry.name for entry in first.under(VOLUMES_ON, "gpu-1")] == ["a", "b"]
    assert after(second, [volume(stream, "a", "gpu-1")], None) == (second, set())


def test_every_stream_has_its_entry() -> None:
    of_ours = [Stream.SERVED, Stream.SILENCES, Stream.CAPACITY_NOTES]  # no streams of the API server
    assert [*(entry.stream for entry in KINDS), *of_ours] == list(Stream)
