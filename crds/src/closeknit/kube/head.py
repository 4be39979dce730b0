"""The few words that every object of an API server begins with: which it is, and which version of it."""

import msgspec

from closeknit.kube.errors import Unavailable


class Head(msgspec.Struct):
    """Metadata of one document."""

    name: str = ""  # a bookmark has none
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815 -- the wire's spelling


class _Document(msgspec.Struct):
    metadata: Head


_decode = msgspec.json.Decoder(_Document).decode


def head_of(document: bytes) -> Head:
    """The head of one JSON document. Raises Unavailable for what is no object: a server that sends it is not well."""
    try:
        return _decode(document).metadata
    except msgspec.MsgspecError as error:
        raise Unavailable(f"the API server sent something that is no object: {error}") from error


def is_newer(version: str, than: str) -> bool:
    """Whether a resourceVersion comes after another of the same resource: etcd's revisions, decimal and counting up."""
    return int(version or 0) > int(than or 0)
