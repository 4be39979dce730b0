"""Standard input in place of a file: as for kubectl, `-` is its name."""

from pathlib import Path

STANDARD_INPUT = Path("-")


def path_of(file: Path) -> Path:
    """Where a FILE argument is read from."""
    return Path("/dev/stdin") if file == STANDARD_INPUT else file


def named(file: Path) -> str:
    """A FILE argument, for people."""
    return "standard input" if file == STANDARD_INPUT else f"{file}"
