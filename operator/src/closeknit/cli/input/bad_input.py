"""What is wrong with a file: where, and what is allowed there."""

from dataclasses import dataclass
from pathlib import Path

from closeknit.api.text.printable import printable
from closeknit.cli.input.standard_input import named


@dataclass(frozen=True, slots=True)
class BadInput(Exception):  # noqa: N818 - it is the user's input that is bad, not our error
    """A file that cannot be used; printed as one line, exit code 2."""

    file: Path
    line: int | None
    what: str
    """The object and field, for example `TrainingJob ml/train: spec.gpus`; empty for the file as a whole."""
    message: str

    def __str__(self) -> str:
        place = f"{named(self.file)}:{self.line}" if self.line else named(self.file)
        text = ": ".join(part for part in (place, self.what, self.message) if part)
        return printable(" ".join(text.split()))  # parsers' messages have line breaks of their own
