"""Pieces of a JSON document, cut by its brackets and commas alone: what one piece holds may be no JSON at all.

For what a decoder refuses as a whole; much slower than one.
"""

import re
from collections.abc import Iterator

_MARKS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{},]', re.DOTALL)
_CLOSER = {ord("["): ord("]"), ord("{"): ord("}")}


def elements(document: bytes) -> list[bytes]:
    """The elements of a list. Raises ValueError where its brackets do not match."""
    return list(_parts(document.strip(), b"["))


def members(document: bytes) -> dict[bytes, bytes]:
    """The values of an object by their names, both as they are written; of two of one name the later, as decoders do.

    Raises ValueError where its brackets do not match, or a member has no name.
    """
    found: dict[bytes, bytes] = {}
    for part in _parts(document.strip(), b"{"):
        name = _MARKS.match(part)
        value = part[name.end() :].lstrip() if name else b""
        if name is None or not value.startswith(b":"):
            raise ValueError("a member of an object has no name")
        found[name.group()[1:-1]] = value[1:].strip()
    return found


def _parts(document: bytes, opener: bytes) -> Iterator[bytes]:
    """What the commas of the outermost brackets separate."""
    if not document.startswith(opener):
        raise ValueError(f"it does not begin with {opener.decode()}")
    open_ = bytearray()
    begin = 1
    for mark in _MARKS.finditer(document):
        at = mark.start()
        sign = document[at]
        if sign in _CLOSER:
            open_.append(_CLOSER[sign])
        elif sign == ord(","):
            if len(open_) == 1:
                yield document[begin:at].strip()
                begin = at + 1
        elif sign != ord('"'):
            if open_.pop() != sign:
                raise ValueError("its brackets do not match")
            if not open_:
                if at != len(document) - 1:
                    raise ValueError("something follows its end")
                if last := document[begin:at].strip():
                    yield last
                return
    raise ValueError("it is cut off")
