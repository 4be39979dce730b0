"""FILE arguments as they are given to a command: what is in them, to a bound."""

from collections.abc import Mapping
from pathlib import Path

from closeknit.cli.bad_input import BadInput
from closeknit.cli.standard_input import STANDARD_INPUT, path_of


def bytes_of(file: Path, most_bytes: int) -> bytes:
    """All that is in a file, or comes from standard input. Raises BadInput for what cannot be read or is larger."""
    try:
        with path_of(file).open("rb") as opened:  # which may be a pipe, or a device that never ends
            found = opened.read(most_bytes + 1)
    except OSError as error:
        raise BadInput(file, None, "", f"cannot be read: {error.strerror}") from None
    if len(found) > most_bytes:
        raise BadInput(file, None, "", f"is larger than {most_bytes >> 20} MiB")
    return found


def check_read_once(files: Mapping[str, Path | None]) -> None:
    """Raises BadInput where more than one of these FILE arguments, name -> file, is standard input."""
    asking = [name for name, file in files.items() if file == STANDARD_INPUT]
    if len(asking) > 1:
        words = f"is asked for by {' and '.join(asking)}, and can be read once; give one of them a file"
        raise BadInput(STANDARD_INPUT, None, "", words)
