"""Slots for the operator's calls to the API server: so many at a time, and each is counted."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from closeknit.kube.api import Api, Resource
from closeknit.kube.errors import AlreadyExists, ApiError, Invalid, NotFound

IN_FLIGHT = 16  # more writes at once make the API server cut our own watches (docs: operator reference, caches)

T = TypeVar("T")
_log = logging.getLogger(__name__)

Count = Callable[[str, Resource, str], None]
"""Takes note of each write: its verb, its resource, and `ok` or the kind of the refusal."""


def in_turn(found: Sequence[T], most: int, look: int) -> tuple[T, ...]:
    """So many of what is to be written at most: at each look, counted from 0, those behind the ones of the look before,
    so that what is refused again and again keeps no other back."""
    start = look * most % len(found) if len(found) > most else 0
    return (*found[start:], *found[:start])[:most]


class WriteSlots:
    """At most IN_FLIGHT calls at a time, over all that share it."""

    def __init__(self, api: Api, count: Count) -> None:
        self.api = api
        self.free = asyncio.Semaphore(IN_FLIGHT)
        self._count = count

    async def sent(self, verb: str, resource: Resource, call: Coroutine[Any, Any, T]) -> T:
        """Sends a write as soon as a slot is free. Raises ApiError."""
        async with self.free:
            return await self.counted(verb, resource, call)

    async def counted(self, verb: str, resource: Resource, call: Coroutine[Any, Any, T]) -> T:
        """Sends a write in a slot that the caller has. Raises ApiError."""
        code = "ok"
        try:
            return await call
        except ApiError as error:
            code = type(error).__name__  # a webhook may give any reason
            raise
        finally:
            self._count(verb, resource, code)

    async def settled(self, verb: str, resource: Resource, namespace: str, call: Coroutine[Any, Any, object]) -> bool:
        """Sends a write that is found again where it is not done. Whether nothing of it is left to do."""
        try:
            await self.sent(verb, resource, call)
        except (AlreadyExists, NotFound):
            return True  # the watch will show
        except Invalid as error:  # mostly: it has changed meanwhile
            _log.info("%s not written", resource, extra={"verb": verb, "namespace": namespace, "error": error})
        except ApiError as error:
            _log.warning("%s not written", resource, extra={"verb": verb, "namespace": namespace, "error": error})
        else:
            return True
        return False
