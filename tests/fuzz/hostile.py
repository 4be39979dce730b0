"""Objects as nobody would write them, each made from a good one by chance: equal seeds, equal bytes."""

import json
import random
import re
from collections.abc import Callable
from typing import Any

Object = dict[str, Any]
_PLACE = '"\\u0000here"'  # no object has such a text
# Values that stand where another should, as JSON or what looks like it.
_VALUES = (
    b"null",
    b"true",
    b"0",
    b"-1",
    b"1.5",
    b"1e999",
    b"-1e-999",
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"9223372036854775808",
    b"9" * 5000,
    b'""',
    b'"\xff\xfe"',
    b'"\xed\xa0\x80"',
    b'"\\ud800"',
    b'"\\u0000"',
    b'"\\u001b[2J\\n"',
    b'"' + b"a" * 100_000 + b'"',
    b'"9999999999999999999999"',
    b'"1e9999"',
    b'"-1Ki"',
    b'"0001-01-01T00:00:00+14:00"',
    b"[]",
    b"{}",
    b"[null]",
    b'[{"a": [1, {"b": null}]}]',
    b'{"\xff": 1}',
    b'{"a": 1, "a": [2]}',
    b'{"": {"": {"": 1}}}',
    b"+1",
    b"[1,]",
    b"'a'",
    b"",
)
_DEPTHS = (3, 90, 99, 101, 130, 210, 1000, 1200, 9000)


def hostile(good: Object, seed: int, *, is_whole: bool = False) -> bytes:
    """One of infinitely many. `is_whole`: its brackets match, so that it can be told from what it stands in."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    document = _placed(good, chance, _value(chance))
    for _ in range(chance.randrange(3)):
        document = chance.choice(_WHOLE_CHANGES if is_whole else _CHANGES)(document, chance)
    return document


def _value(chance: random.Random) -> bytes:
    if chance.random() < 0.6:
        return chance.choice(_VALUES)
    depth = chance.choice(_DEPTHS)
    begin, end = chance.choice([(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")])
    return begin * depth + b"1" + end * depth


def _placed(good: Object, chance: random.Random, value: bytes) -> bytes:
    """The object's JSON with the value in the place of another, or beside others; never in that of its name."""
    copy = json.loads(json.dumps(good))
    holder: Any = copy
    way: list[str | int] = []
    while isinstance(holder, dict | list) and holder:
        step: Any = chance.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        inner = holder[step]
        way.append(step)
        if not isinstance(inner, dict | list) or not inner or chance.random() < 0.3:
            if way[0] == "metadata" and (len(way) == 1 or way[1] in {"name", "namespace"}):
                step = "odd"
            holder[step] = json.loads(_PLACE)
            break
        holder = inner
    return json.dumps(copy).encode().replace(_PLACE.encode(), value)


def _cut(document: bytes, chance: random.Random) -> bytes:
    return document[: chance.randrange(len(document) + 1)]


def _swapped(document: bytes, chance: random.Random) -> bytes:
    """Some bytes are others."""
    changed = bytearray(document)
    for _ in range(chance.randrange(1, 4)):
        if changed:
            changed[chance.randrange(len(changed))] = chance.choice(b'\x00\xff\x7f{}[]":,\\ 9e-')
    return bytes(changed)


def _renamed(document: bytes, chance: random.Random) -> bytes:
    """One key is another, perhaps one that is there already."""
    keys = sorted(set(re.findall(rb'"([a-zA-Z]+)": ', document)) - {b"metadata", b"name", b"namespace"})
    if not keys:
        return document
    old, new = chance.choice(keys), chance.choice([*keys, b"\xff", b"", b"\\u0000"])
    return document.replace(b'"%s": ' % old, b'"%s": ' % new, 1)


def _doubled(document: bytes, chance: random.Random) -> bytes:
    """One field of the top comes twice."""
    extra = chance.choice([b'"spec": null', b'"status": []', b'"spec": {"a": NaN}', b'"metadata2": {}'])
    return document[:-1] + b", " + extra + b"}" if document.endswith(b"}") else document


def _spaced(document: bytes, _: random.Random) -> bytes:
    return b"  " + document + b"\t "


_Change = Callable[[bytes, random.Random], bytes]
_WHOLE_CHANGES: tuple[_Change, ...] = (_renamed, _doubled, _spaced)
_CHANGES: tuple[_Change, ...] = (*_WHOLE_CHANGES, _cut, _swapped)
