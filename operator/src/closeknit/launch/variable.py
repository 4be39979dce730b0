"""One environment variable."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable of the trainer, and why it has this value."""

    name: str
    value: str
    why: str
