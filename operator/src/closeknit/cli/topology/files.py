"""NodeTopologies of a file, and of what nvidia-smi printed."""

from pathlib import Path

from closeknit.api.objects import NodeTopology, ObjectMeta
from closeknit.cli.bad_input import BadInput
from closeknit.cli.smi.reading import read
from closeknit.cli.smi.torn import Torn

STANDARD_INPUT = Path("-")
MAX_TEXT_BYTES = 1 << 20  # 40 NICs beside 8 GPUs make 30 KB
UNNAMED = "pasted"


def from_smi(file: Path, node: str | None) -> NodeTopology:
    """The machine that a text shows, under the name of its node. Raises BadInput."""
    path = input_path(file)
    try:
        with path.open("rb") as opened:
            content = opened.read(MAX_TEXT_BYTES + 1)
        if len(content) > MAX_TEXT_BYTES:
            raise BadInput(file, None, "", f"is larger than {MAX_TEXT_BYTES >> 20} MiB")
        spec = read(_text(content))
    except OSError as error:
        raise BadInput(file, None, "", f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadInput(file, None, "", f"is not UTF-8 text (byte {error.start})") from None
    except Torn as error:
        raise BadInput(file, error.line, "", error.message) from None
    return NodeTopology(metadata=ObjectMeta(name=node or UNNAMED), spec=spec)


def input_path(file: Path) -> Path:
    """Where a FILE argument is read from: `-` is standard input."""
    return Path("/dev/stdin") if file == STANDARD_INPUT else file


def _text(content: bytes) -> str:
    """Windows' own tools write UTF-16, and say so in the first two bytes."""
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16")
    return content.decode("utf-8-sig")
