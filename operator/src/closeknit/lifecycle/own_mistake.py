"""The one guard against our own mistakes in deciding: a mistake becomes a value, and all other jobs go on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OwnMistake:
    """An exception that no code of ours expects."""

    error: Exception


def guarded(decide: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | OwnMistake:
    """The result of the call, or our mistake that broke it. One job or shape does not block others."""
    try:
        return decide(*args, **kwargs)
    except Exception as error:  # whatever it is: that is what the guard is for
        return OwnMistake(error)
