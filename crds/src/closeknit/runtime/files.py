"""Files that somebody gave us, and that may be anything."""

from pathlib import Path


class FileTooLargeError(ValueError):
    """A file that is larger than anything it could be meant to be; the message says so, without its name."""


def read_bytes(file: Path, limit_bytes: int) -> bytes:
    """What is in the file, or comes out of the pipe. Raises OSError, and FileTooLargeError without reading on."""
    with file.open("rb") as opened:
        content = opened.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise FileTooLargeError(f"is larger than {limit_bytes >> 20} MiB")
    return content
