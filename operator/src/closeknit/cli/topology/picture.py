"""A part of a picture, drawn and measured."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Picture:
    """SVG elements from 0, 0 on, and how much room they take, in pixels."""

    width: float
    height: float
    elements: tuple[str, ...]
