"""NodeTopologies of a file, and of what nvidia-smi printed."""

from pathlib import Path

from closeknit.api.objects import NodeTopology, ObjectMeta
from closeknit.cli.input.bad_input import BadInput
from closeknit.cli.input.given import bytes_of
from closeknit.cli.smi.reading import read
from closeknit.cli.smi.torn import Torn

MAX_TEXT_BYTES = 1 << 20  # 40 NICs beside 8 GPUs make 30 KB
UNNAMED = "pasted"


def from_smi(file: Path, node: str | None) -> NodeTopology:
    """The machine that a text shows, under the name of its node. Raises BadInput."""
    try:
        spec = read(_text(bytes_of(file, MAX_TEXT_BYTES)))
    except UnicodeDecodeError as error:
        raise BadInput(file, None, "", f"is not UTF-8 text (byte {error.start})") from None
    except Torn as error:
        raise BadInput(file, error.line, "", error.message) from None
    return NodeTopology(metadata=ObjectMeta(name=node or UNNAMED), spec=spec)


def _text(pasted: bytes) -> str:
    """Windows' own tools write UTF-16, and say so in the first two bytes."""
    if pasted[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return pasted.decode("utf-16")
    return pasted.decode("utf-8-sig")
