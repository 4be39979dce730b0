"""A pasted table that cannot be believed."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Torn(Exception):  # noqa: N818 - it is the text that is torn, not our error
    """Why a text is no table of `nvidia-smi topo -m`; names row and column where there are such."""

    line: int | None
    """Line of the text, from 1."""
    message: str

    def __str__(self) -> str:
        return self.message
