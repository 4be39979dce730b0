"""What changes between two moments of the map, as events of a stream of bounded size."""

from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec

from closeknit.api.names import JobKey
from closeknit.webmap.map_rows import HIDDEN, NodeRow
from closeknit.webmap.queue_edits import QueueEdit, edits
from closeknit.webmap.scene import EMPTY_SCENE, DrawnJob, DrawnNode, Scene

FRAME_BYTES = 1 << 18  # what a browser reads in some milliseconds; one row may be longer, up to its own bound
EDIT_BYTES = 1 << 15
_encode = msgspec.json.Encoder().encode


class Veil(msgspec.Struct, frozen=True):
    """What a reader may see: the jobs of these namespaces; None: of all."""

    namespaces: frozenset[str] | None = None

    def shows(self, namespace: str) -> bool:
        """Whether the jobs of a namespace are shown."""
        return self.namespaces is None or namespace in self.namespaces


OPEN = Veil()


def frames(old: Scene | None, new: Scene, veil: Veil, now: datetime) -> tuple[bytes, ...]:
    """The events by which a reader of `old` has `new`; none where nothing has changed. `old` None: he has nothing.

    Every event is one JSON object. `more` is true where another one belongs to the same moment, `reset` where what was
    there before is gone; a row that is null is gone. `queue` is edits, one after the other: (place, how many go, keys
    that come; a number in their place is so many jobs that are not shown).
    """
    parts = list(_packed(_changes(old or EMPTY_SCENE, new, veil, is_first=old is None)))
    if not parts and old is not None:
        return ()
    told = []
    for number, part in enumerate(parts or [{}]):
        head = {"now": round(now.timestamp(), 1)}
        if old is None and number == 0:
            head["reset"] = True
        if number + 1 < len(parts):
            head["more"] = True
        told.append(_event(head, part))
    return tuple(told)


_Change = tuple[str, bytes, bytes]
"""Section, key and value; without a key the section is the value, or a list of such values."""
_LISTS = {"queue"}
_NULL = b"null"


def _changes(old: Scene, new: Scene, veil: Veil, *, is_first: bool) -> Iterator[_Change]:
    """In the order of drawing: what is large first."""
    if is_first or old.levels != new.levels:
        yield "levels", b"", _encode(new.levels)
    if is_first or old.totals is not new.totals:
        yield "totals", b"", b"null" if new.totals is None else new.totals.model_dump_json(by_alias=True).encode()
    for key, wire in new.machines.items():
        if old.machines.get(key) != wire:
            yield "machines", _encode(key), wire
    yield from _nodes(old.nodes, new.nodes, veil)
    yield from _jobs(old.jobs, new.jobs, veil)
    found = new.queue_edits if new.queue_before is old.queue else edits(old.queue, new.queue)
    for edit in found:
        for place, gone, come in _parts(edit, veil):
            yield "queue", b"", _encode((place, gone, come))
    hidden = _hidden(new, veil)
    if is_first or _hidden(old, veil) != hidden:
        yield "hidden", b"", _encode(hidden)


def _parts(edit: QueueEdit, veil: Veil) -> Iterator[tuple[int, int, list[str | int]]]:
    """An edit, or as many as make each a small one."""
    place, gone = edit.place, edit.gone
    come: list[str | int] = []
    size = held = 0
    for key in edit.come:
        if not veil.shows(key.namespace):
            if come and isinstance(last := come[-1], int):
                come[-1] = last + 1
            else:
                come.append(1)
        else:
            come.append(word := str(key))
            size += len(word) + 3
        held += 1
        if size > EDIT_BYTES:
            yield place, gone, come
            place, gone, come, size, held = place + held, 0, [], 0, 0
    if gone or come:
        yield place, gone, come


def _hidden(of: Scene, veil: Veil) -> int:
    """How many jobs the reader may not list."""
    return sum(number for namespace, number in of.namespaces.items() if not veil.shows(namespace))


def _nodes(old: Mapping[str, DrawnNode], new: Mapping[str, DrawnNode], veil: Veil) -> Iterator[_Change]:
    for name, node in new.items():
        known = old.get(name)
        if known is node:
            continue
        wire = _seen(node, veil)
        if known is None or _seen(known, veil) != wire:
            yield "nodes", _encode(name), wire
    for name in old.keys() - new.keys() if old else ():
        yield "nodes", _encode(name), _NULL


def _seen(node: DrawnNode, veil: Veil) -> bytes:
    """The row as this reader has it."""
    if all(veil.shows(namespace) for namespace in _namespaces(node.row)):
        return node.wire
    held: dict[str, tuple[int, ...]] = {}
    for who, gpus in node.row.held.items():
        word = _veiled(who, veil)
        held[word] = tuple(sorted((*held.get(word, ()), *gpus)))
    mig = tuple(msgspec.structs.replace(each, who=_veiled(each.who, veil)) for each in node.row.mig)
    return _encode(msgspec.structs.replace(node.row, held=held, mig=mig))


def _veiled(who: str, veil: Veil) -> str:
    namespace, slash, _ = who.partition("/")
    return who if not slash or veil.shows(namespace) else HIDDEN


def _namespaces(row: NodeRow) -> Iterator[str]:
    holders = (*row.held, *(device.who for device in row.mig))
    return (who.partition("/")[0] for who in holders if "/" in who)


def _jobs(old: Mapping[JobKey, DrawnJob], new: Mapping[JobKey, DrawnJob], veil: Veil) -> Iterator[_Change]:
    for key, job in new.items():
        known = old.get(key)
        if known is not job and veil.shows(key.namespace) and (known is None or known.wire != job.wire):
            yield "jobs", _encode(str(key)), job.wire
    for key in sorted(old.keys() - new.keys()) if old else ():
        if veil.shows(key.namespace):
            yield "jobs", _encode(str(key)), _NULL


def _packed(changes: Iterator[_Change]) -> Iterator[dict[str, list[bytes] | bytes]]:
    """The changes in parts of at most FRAME_BYTES, or one row."""
    part: dict[str, list[bytes] | bytes] = {}
    size = 0
    for section, key, value in changes:
        weight = len(key) + len(value) + 2
        if part and size + weight > FRAME_BYTES:
            yield part
            part, size = {}, 0
        size += weight
        if not key and section not in _LISTS:
            part[section] = value
            continue
        rows = part.setdefault(section, [])
        assert isinstance(rows, list)  # noqa: S101 - a section has keys or none, for the type checker
        rows.append(key + b":" + value if key else value)
    if part:
        yield part


def _event(head: Mapping[str, object], part: Mapping[str, list[bytes] | bytes]) -> bytes:
    fields = [_encode(name) + b":" + _encode(value) for name, value in head.items()]
    for section, told in part.items():
        before, after = (b"[", b"]") if section in _LISTS else (b"{", b"}")
        value = told if isinstance(told, bytes) else before + b",".join(told) + after
        fields.append(_encode(section) + b":" + value)
    return b"data: {" + b",".join(fields) + b"}\n\n"
