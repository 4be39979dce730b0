"""A pasted table that cannot be believed."""


class Torn(Exception):  # noqa: N818 - it is the text that is torn, not our error
    """Why a text is no table of `nvidia-smi topo -m`; the message names row and column where there are such."""

    def __init__(self, line: int | None, message: str) -> None:
        super().__init__(message)
        self.line = line  # of the text, from 1
        self.message = message
