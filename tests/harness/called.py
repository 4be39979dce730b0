"""What a piece of work takes in calls, which are the same on every machine and at every load."""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

A_SECOND = 1_500_000  # calls that decisions make in a second of CPU time, on a slow machine

T = TypeVar("T")


def calls_of(work: Callable[[], T]) -> tuple[T, int]:
    """The result of some work, and how many functions it called, built-in ones included."""
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        result = work()
    finally:
        sys.setprofile(None)
    return result, calls
