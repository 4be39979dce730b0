"""The few words that every object of an API server begins with: which it is, and which version of it."""

from typing import Any

import msgspec

from closeknit.kube.json_pieces import members


class NoHead(Exception):  # noqa: N818 -- a fact about an object, and no error of ours
    """It is unknown which object a document is; `str()` says why."""


class Head(msgspec.Struct):
    """Metadata of one document."""

    name: str = ""  # a bookmark has none
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815 -- the wire's spelling


class _Document(msgspec.Struct):
    metadata: Head


_decode = msgspec.json.Decoder(_Document).decode
_decode_text = msgspec.json.Decoder(str).decode
# What a decoder raises: msgspec's own errors and UnicodeDecodeError are ValueErrors.
UNREADABLE = (ValueError, RecursionError)


def head_of(document: bytes) -> Head:
    """The head of one JSON document, also of one that is broken elsewhere. Raises NoHead."""
    try:
        head = _decode(document).metadata
    except UNREADABLE:
        head = _cut_out(document)
    if not is_version(head.resourceVersion):
        raise NoHead(f"its resourceVersion is {head.resourceVersion[:40]!r}")
    return head


def is_version(text: str) -> bool:
    """Whether this is a resourceVersion: none, or etcd's revision, 64 bits as a decimal number."""
    return not text or (text.isascii() and text.isdecimal() and len(text) < 20)


def is_newer(version: str, than: str) -> bool:
    """Whether a resourceVersion comes after another of the same resource: they count up."""
    return int(version or 0) > int(than or 0)


def _cut_out(document: bytes) -> Head:
    try:
        metadata = members(members(document)[b"metadata"])
        texts: dict[str, Any] = {
            field: _decode_text(metadata[field.encode()])
            for field in Head.__struct_fields__
            if field.encode() in metadata
        }
    except KeyError:
        raise NoHead("it has no metadata") from None
    except UNREADABLE as error:
        raise NoHead(str(error)) from None
    return Head(**texts)
