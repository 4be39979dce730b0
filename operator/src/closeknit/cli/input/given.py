"""What a command is given: files, whose content is read to a bound, and which cluster to ask."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from closeknit.cli.input.bad_input import BadInput
from closeknit.cli.input.not_there import NotThere
from closeknit.cli.input.standard_input import STANDARD_INPUT, path_of


@dataclass(frozen=True, slots=True)
class Reach:
    """Which cluster is asked, and where in it; without a word, what kubectl would ask."""

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    everywhere: bool = False
    """In all namespaces."""

    def check_not_asked(self, given: str) -> None:
        """Raises NotThere where it says which cluster to ask, though objects are `given` by that option."""
        ways = {"--kubeconfig": self.kubeconfig, "--context": self.context}
        if named := [option for option, value in ways.items() if value is not None]:
            words = f"{' and '.join(named)} would change nothing: leave out either"
            raise NotThere(f"with {given} FILE no cluster is asked, and {words}")


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
