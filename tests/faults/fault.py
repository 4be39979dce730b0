"""Faults as data: which calls, and what happens to them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from closeknit.kube.api import Key, Resource, WatchEvent
from closeknit.kube.errors import ApiError

WRITES = ("create", "json_patch", "apply", "put_status", "delete")
Verb = Literal["get", "list", "watch", "create", "json_patch", "apply", "put_status", "delete", "write", "any"]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the code under test. `key.name` is empty for lists and watches, `body` what was sent."""

    verb: str
    resource: Resource
    key: Key
    body: Any = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """The call raises this error and does nothing."""

    error: ApiError


@dataclass(frozen=True, slots=True)
class Delay:
    """The call, and what it reads or writes, happens so much later."""

    seconds: float


@dataclass(frozen=True, slots=True)
class LoseReply:
    """The write is applied, and its caller hears of a lost connection."""


@dataclass(frozen=True, slots=True)
class Kill:
    """The write is applied, then its caller dies of `exception`."""

    exception: type[BaseException]


@dataclass(frozen=True, slots=True)
class HoldEvents:
    """The stream stalls for so long before each such event: what comes after it comes later, too."""

    seconds: float
    when: Callable[[WatchEvent], bool] = lambda _: True


@dataclass(frozen=True, slots=True)
class EndStream:
    """The stream ends quietly once it has delivered so many events."""

    after_events: int = 0


@dataclass(frozen=True, slots=True)
class Fault:
    """`effect` on every matching call, or on the nth alone (from 1) of those that got as far as this effect.

    That is: LoseReply and Kill count writes that changed something, HoldEvents and EndStream streams that opened.
    """

    effect: Refuse | Delay | LoseReply | Kill | HoldEvents | EndStream
    verb: Verb = "any"
    resource: Resource | None = None
    nth: int | None = None
    when: Callable[[Call], bool] = lambda _: True

    def matches(self, call: Call) -> bool:
        """Whether the call is one of those that are counted."""
        return (
            (self.verb in ("any", call.verb) or (self.verb == "write" and call.verb in WRITES))
            and self.resource in (None, call.resource)
            and self.when(call)
        )
