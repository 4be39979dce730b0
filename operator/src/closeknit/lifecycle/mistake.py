"""The one guard for mistakes of ours in deciding: what one breaks becomes a value, and all other jobs go on."""

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
    """What the call gives, or the mistake of ours that broke it. One job or shape keeps no others waiting."""
    try:
        return decide(*args, **kwargs)
    except Exception as error:  # whatever it is: that is what the guard is for
        return OwnMistake(error)
