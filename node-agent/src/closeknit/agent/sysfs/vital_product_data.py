"""Vital product data of a PCI function, as the file `vpd` of sysfs has them: PCI Local Bus 3.0, appendix I."""

from collections.abc import Iterator

from closeknit.agent.sysfs.folder import Folder

MAX_VITAL_BYTES = 1 << 15  # all that there can be: their addresses have 15 bits
LARGE, END, READ_ONLY = 0x80, (0x78, 0x79), 0x90  # tags
# The keyword of ConnectX cards whose value all functions of one card share. The cards say so themselves: VA is
# "MLX:...:UUID=V3:...". The program rdma_topo of rdma-core matches by it, too.
CARD_UUID = b"V3"


def vital_product_data(function: Folder, fact: str) -> bytes | None:
    """Those of a function; one that has the file and says nothing has not been read."""
    content = function.content("vpd", fact, MAX_VITAL_BYTES)
    if content == b"":
        function.errors[fact] = "Empty"
    return content or None


def card_uuid(content: bytes) -> str | None:
    """The uuid that a ConnectX shares with all its functions; None where the data have none, or are torn."""
    for tag, item in _items(content):
        if tag == READ_ONLY:
            for keyword, value in _keywords(item):
                if keyword == CARD_UUID:
                    text = value.decode(errors="replace").strip().rstrip("\0")
                    return text if text and text.isascii() and text.isprintable() else None
    return None


def _items(content: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(content) and content[at] not in END:
        tag = content[at]
        is_large = bool(tag & LARGE)
        start = at + (3 if is_large else 1)
        length = int.from_bytes(content[at + 1 : start], "little") if is_large else tag & 0x07
        if start + length > len(content):
            return
        yield tag, content[start : start + length]
        at = start + length


def _keywords(item: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at + 3 <= len(item):
        end = at + 3 + item[at + 2]
        if end > len(item):
            return
        yield item[at : at + 2], item[at + 3 : end]
        at = end
