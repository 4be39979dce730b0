"""Dump files: the readings of one machine as JSON, so that what hardware said can be kept, sent and replayed."""

import msgspec

from closeknit.agent.discovery.readings.readings import Readings
from closeknit.api.text.nesting import MAX_DEPTH, is_deeper

FORMAT = 1


class _Dump(msgspec.Struct, forbid_unknown_fields=True):
    format: int
    readings: Readings


class _Format(msgspec.Struct):
    format: int | None = None


def encode(readings: Readings) -> bytes:
    """The dump file of these readings, indented for people."""
    return msgspec.json.format(msgspec.json.encode(_Dump(FORMAT, readings)), indent=1) + b"\n"


def decode(text: bytes) -> Readings:
    """The readings that `encode` was given. Raises ValueError."""
    if is_deeper(text):
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    try:
        found = msgspec.json.decode(text, type=_Format).format
        if found != FORMAT:
            raise ValueError(f"its format is {found}; this version reads format {FORMAT}")
        return msgspec.json.decode(text, type=_Dump).readings
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error
