"""Reading JSON whose schema is not ours, a Pod's spec above all: what cannot be read is told in one sentence."""

import json
from typing import Any

SHOWN_LENGTH = 63  # of a text; the longest container name or label value


class MalformedError(ValueError):
    """A part of an opaque object that cannot be used. The message begins with its path, and says what was found there
    and what to do."""


def object_at(holder: dict[str, Any], field: str, path: str) -> dict[str, Any]:
    """An object, empty where it is absent or null, as Kubernetes reads it. Raises MalformedError."""
    value = holder.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise MalformedError(f"{path}.{field} is {found(value)}; it must be an object")
    return value


def list_at(holder: dict[str, Any], field: str, path: str) -> list[Any]:
    """A list, empty where it is absent or null. Raises MalformedError."""
    value = holder.get(field)
    if value is None:
        return []
    if not isinstance(value, list):
        raise MalformedError(f"{path}.{field} is {found(value)}; it must be a list")
    return value


def objects_at(holder: dict[str, Any], field: str, path: str) -> list[dict[str, Any]]:
    """A list of objects, empty where it is absent or null. Raises MalformedError."""
    values = list_at(holder, field, path)
    for index, value in enumerate(values):
        if not isinstance(value, dict):
            raise MalformedError(f"{path}.{field}[{index}] is {found(value)}; it must be an object")
    return values


def short(text: str) -> str:
    """The text, cut where a line could not hold it."""
    return text if len(text) <= SHOWN_LENGTH else text[: SHOWN_LENGTH - 3] + "..."


def found(value: object) -> str:
    """A JSON value in few words: what a person typed, as far as one line holds it."""
    match value:
        case None:
            return "missing"
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(short(value))
        case int() | float():
            return f"the number {value:g}" if abs(value) < 1e15 else "a number"
        case list():
            return "a list"
        case _:
            return "an object"
