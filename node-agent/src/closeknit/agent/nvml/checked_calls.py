"""One question to NVML: what it answers, or why it does not."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pynvml

from closeknit.agent.nvml.nvml_messages import NOT_A_NUMBER, NOT_TEXT

# nvmlValueType_t -> member of the union
VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")

_T = TypeVar("_T")


def ask(errors: dict[str, str], fact: str, call: Callable[..., _T], *arguments: Any) -> _T | None:
    """What NVML answers; None and the error's name under `fact` if it refuses."""
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        errors[fact] = word(error)
    except UnicodeDecodeError:
        errors[fact] = NOT_TEXT
    return None


def field(handle: Any, errors: dict[str, str], fact: str, number: int, scope: int | None = None) -> int | None:
    """The value of one field; `scope` is the link. None and the error's name under `fact` if there is none."""
    (value,) = fields(handle, errors, fact, [number if scope is None else (number, scope)])
    if isinstance(value, str):
        errors[fact] = value
        return None
    return value


def fields(
    handle: Any, errors: dict[str, str], fact: str, wanted: Sequence[int | tuple[int, int]]
) -> list[int | str | None]:
    """Several fields at once: of each its value, or the name of its error; each value has a return code of its own.

    All None, and an error under `fact`, where the call itself failed.
    """
    values = ask(errors, fact, pynvml.nvmlDeviceGetFieldValues, handle, list(wanted))
    if values is None:
        return [None] * len(wanted)
    return [_value(value) for value in values]


def word(error: Any) -> str:
    """NVML's own name of an error: NotSupported, GpuIsLost."""
    name = type(error).__name__.removeprefix("NVMLError_")
    return name if name != "NVMLError" else f"Error{error.value}"


def _value(value: Any) -> int | str:
    if value.nvmlReturn != pynvml.NVML_SUCCESS:
        return word(pynvml.NVMLError(value.nvmlReturn))
    if not 0 <= value.valueType < len(VALUE_MEMBERS):
        return "UnknownValueType"
    found = getattr(value.value, VALUE_MEMBERS[value.valueType])
    # What is no number, or more than travels between two processes, would end this one.
    return int(found) if -(2**63) <= found < 2**64 else NOT_A_NUMBER
