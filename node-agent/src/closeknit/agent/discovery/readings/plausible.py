"""Readings that cannot be true: each costs that one fact, and never its GPU or its node."""

from typing import Any, TypeVar

from pydantic import ValidationError

from closeknit.api.wire import Wire

MOST = 2**63 - 1  # the API server refuses an object with a larger whole number

W = TypeVar("W", bound=Wire)


def possible(model: type[W], **facts: Any) -> W:
    """The value of these facts, less those that its schema refuses: a PCIe generation 0, a width of 255 lanes.

    Raises pydantic.ValidationError where a fact that it cannot do without is impossible.
    """
    try:
        return model(**facts)
    except ValidationError as error:
        names = {field.alias or name: name for name, field in model.model_fields.items()}
        refused = {names.get(str(fault["loc"][0]), str(fault["loc"][0])) for fault in error.errors() if fault["loc"]}
        kept = {
            name: fact for name, fact in facts.items() if name not in refused or model.model_fields[name].is_required()
        }
        return model(**kept)


def possible_if_whole(model: type[W], **facts: Any) -> W | None:
    """The same; None where a fact that it cannot do without is impossible."""
    try:
        return possible(model, **facts)
    except ValidationError:
        return None


def countable(number: int | None) -> int | None:
    """The number, if it is one that Kubernetes can hold."""
    return number if number is not None and number <= MOST else None
