"""What a caller may have given by mistake, told in a sentence: before it is sent, or meets a model."""

from collections.abc import Mapping, Sequence
from math import isfinite, isnan
from typing import Any

from closeknit.api.text.printable import printable
from closeknit.client.client_errors import ClientError, JobRefused

MOST_DEEP = 64  # levels of a template: a Pod has ten
_LONGEST = 253  # characters of a name (RFC 1123)


def check_name(name: Any, what: str = "the name of a TrainingJob") -> None:
    """Raises ClientError for what no object can be called, and for what would lead to another path."""
    if not isinstance(name, str):
        raise ClientError(printable(f"{_shown(name)} is {_kind(name)}; {what} is a str"))
    is_odd = any(not (each.isascii() and (each.isalnum() or each in "-.")) for each in name)
    if not name or len(name) > _LONGEST or is_odd or not name.strip("."):
        raise ClientError(printable(f"{_shown(name)} is not {what}: that has lower-case letters, digits, - and ."))


def check_number(value: Any, what: str, *, is_whole: bool = True, least: float = 0) -> None:
    """Raises ClientError."""
    is_number = isinstance(value, int if is_whole else int | float) and not isinstance(value, bool)
    if not is_number or isnan(value):
        raise ClientError(printable(f"{what}={_shown(value)}: it is {'a whole number' if is_whole else 'a number'}"))
    if value < least:
        raise ClientError(f"{what}={value}: it is {least:g} or more")


def check_command(command: Any) -> None:
    """Raises JobRefused for a command line in one string, which would be taken letter by letter."""
    if isinstance(command, str | bytes):
        words = command.split() if isinstance(command, str) else command.decode(errors="replace").split()
        raise JobRefused(printable(f"command is {_kind(command)}; give a list of its words: {_shown(words)}"))
    if not isinstance(command, Sequence):
        raise JobRefused(printable(f"command is {_kind(command)}; give a list of str"))
    for at, word in enumerate(command):
        if not isinstance(word, str):
            raise JobRefused(printable(f"command[{at}] is {_kind(word)}, {_shown(word)}; give a str"))


def check_mapping(value: Any, what: str, *, of_text: bool = False) -> None:
    """Raises JobRefused for what is given and is no dict; `of_text`: or has keys or values that are no str."""
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise JobRefused(printable(f"{what} is {_kind(value)}; give a dict, as {{'a': 'b'}}"))
    for key, each in value.items() if of_text else ():
        if not isinstance(key, str) or not isinstance(each, str):
            raise JobRefused(printable(f"{what}[{_shown(key)}] is {_kind(each)}, {_shown(each)}; give str for both"))


def check_plain(value: Any, where: str, deep: int = MOST_DEEP) -> None:
    """Raises JobRefused for what JSON cannot say: objects, dates, no Unicode text, no number, and what has no end."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise JobRefused(printable(f"{where} has characters that are no Unicode text: {_shown(value)}")) from None
    elif isinstance(value, Mapping | list | tuple):
        if deep == 0:
            raise JobRefused(printable(f"{where[:200]} is nested more than {MOST_DEEP} levels deep"))
        if isinstance(value, Mapping):
            for key, each in value.items():
                if not isinstance(key, str):
                    raise JobRefused(printable(f"{where} has the key {_shown(key)}, which is {_kind(key)}; give a str"))
                check_plain(key, f"a key of {where}")
                check_plain(each, f"{where}.{key}", deep - 1)
        else:
            for at, each in enumerate(value):
                check_plain(each, f"{where}[{at}]", deep - 1)
    elif value is not None and (not isinstance(value, bool | int | float) or not isfinite(value)):
        raise JobRefused(printable(f"{where} is {_kind(value)}, {_shown(value)}; a manifest has no such thing"))


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}" if value is not None else "None"


def _shown(value: Any) -> str:
    try:
        words = repr(value)
    except Exception:  # an object of somebody's
        words = "what cannot be shown"
    return words if len(words) <= 60 else f"{words[:57]}..."  # one line
