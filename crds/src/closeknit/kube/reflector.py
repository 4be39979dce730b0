"""A live copy of one resource: listed once, then kept up to date by a watch that survives what watches suffer.

The contract, in the order of what goes wrong:
    the watch ends                  resume from the last resourceVersion at once; the second time in a row without
                                    anything received, after a pause
    the server says Gone (410)      list again and say what vanished meanwhile (an object deleted and made again under
                                    its name has another uid: DELETED, then ADDED)
    70 s without even a bookmark    resume from the last resourceVersion at once, which shows whether anybody is there:
                                    the connection may be dead, or the cluster at rest
    no version is served of what    the copy is empty and complete, and it is asked again every minute
    a cluster need not serve
    any other error                 resume from the last resourceVersion after a pause of 0.2 s doubling to 30 s
    a list older than what was      not taken: some API server lags behind
    seen already
    an object cannot be decoded     it is quarantined: reported, and absent until it can be
    it is unknown which object      the same, as one object without a name; and the list that follows the watch shows
                                    what has become of it
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, Literal, NoReturn, TypeVar

from closeknit.kube.api import Api, Key, Resource, WatchEvent
from closeknit.kube.backoff import Backoff
from closeknit.kube.errors import ApiError, Forbidden, Gone, NotFound, Unavailable
from closeknit.kube.object_identity import Head, NoHead, head_of, is_newer

# Objects of a page that are decoded before others have the event loop: 50 NodeTopologies take 25 ms, a page 250.
BREATH = 50
PAGE_SIZE = 500  # kubectl's and client-go's page: 500 nodes of 16 KB are 8 MB in flight
WATCH_TIMEOUT_S = 240  # plus up to as much again, so that a fleet's watches do not end together
# An API server sends a bookmark about once a minute, but none as long as its newest version of the resource is the one
# that the watch began with (k8s.io/apiserver 0.36, cacheWatcher.process).
INACTIVITY_S = 70.0
# Somebody upgrades a cluster, or turns a feature on, at the pace of people.
UNSERVED_PAUSE_S = 60.0
# A stream that lived this long, or brought anything, was no failure: the next one starts at once.
HEALTHY_STREAM_S = 1.0
NAMELESS = Key("", "")
"""Stands in quarantine for whatever has no readable name."""
REASON_LENGTH = 500  # pydantic names every field that is wrong

T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Event(Generic[T]):
    """One change of the copy: ADDED has no `old`, DELETED no `new`."""

    kind: Literal["ADDED", "MODIFIED", "DELETED"]
    key: Key
    old: T | None
    new: T | None


class Reflector(Generic[T]):
    """Runs for ever in `run`; everything else is read from the same event loop.

    `decode` gives the few fields that are kept of one JSON document, or None for an object of no interest. What it
    raises quarantines the object. `on_events` gets what each list page and each batch of watch events changed, in one
    call after `objects` shows it: of what an object passed through within a batch, where it stands now. A change that
    leaves the decoded value equal is not told. A tuple of resources has the versions of one, newest first, that a
    cluster need not serve at all; the first that is served is read, and `on_served` gets whether one is, whenever that
    changes.
    """

    def __init__(  # noqa: PLR0913 -- what a copy is of, and who hears of it
        self,
        api: Api,
        resource: Resource | tuple[Resource, ...],
        decode: Callable[[bytes], T | None],
        on_events: Callable[[Sequence[Event[T]]], None],
        *,
        on_quarantine: Callable[[Key, str], None] | None = None,
        on_served: Callable[[bool], None] | None = None,
        field_selector: str | None = None,
        label_selector: str | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._versions = resource if isinstance(resource, tuple) else (resource,)
        self._may_be_unserved = isinstance(resource, tuple)
        self._is_served: bool | None = None
        self._on_served = on_served
        self.resource = self._versions[0]
        self.relists_total = 0  # lists after the first complete one
        self.watch_errors_total = 0  # failed lists and watches; not a watch that ended quietly
        self.ghosts_removed_total = 0  # objects whose deletion only a list showed
        self.last_error: ApiError | None = None  # of the last list or watch; None while all is well
        self.synced = asyncio.Event()  # set by the first complete list, and for good
        self._api = api
        self._decode = decode
        self._on_events = on_events
        self._on_quarantine = on_quarantine
        self._field_selector = field_selector
        self._label_selector = label_selector
        self._jitter = jitter
        self._backoff = Backoff(first_s=0.2, longest_s=30.0, jitter=jitter)
        self._objects: dict[Key, T] = {}
        self._uids: dict[Key, str] = {}
        self._quarantined: dict[Key, str] = {}
        self._last_rv = ""
        self._must_list = True
        self._failures = 0
        self._last_activity: float | None = None
        self._asked = asyncio.Event()  # for a list, by `read_again`, that has not begun yet
        self._begun_lists = 0
        self._whole_lists = 0  # number of the last one that is complete
        self._listed = asyncio.Condition()
        self._silence: asyncio.Timeout | None = None  # of the watch

    @property
    def objects(self) -> Mapping[Key, T]:
        """The copy, read-only; it changes between awaits."""
        return MappingProxyType(self._objects)

    @property
    def quarantined(self) -> Mapping[Key, str]:
        """What cannot be decoded at the moment, and why, on one line."""
        return MappingProxyType(self._quarantined)

    @property
    def last_rv(self) -> str:
        """The newest resourceVersion seen; empty before the first list is complete."""
        return self._last_rv

    @property
    def last_activity_s(self) -> float:
        """Seconds since the API server last answered or said anything, bookmarks included; infinite before that."""
        if self._last_activity is None:
            return float("inf")
        return asyncio.get_running_loop().time() - self._last_activity

    def put(self, key: Key, value: T) -> None:
        """Keeps another part of an object that is there, and has not changed: no change is reported."""
        if key in self._objects:
            self._objects[key] = value

    async def read_again(self) -> None:
        """Returns once the copy shows everything that was written before the call, by a list that begins after it.

        A version that a list gives is of the whole cluster, and a watch of a kind at rest comes to it after a minute.
        """
        wanted = self._begun_lists + 1
        self._asked.set()
        self._must_list = True
        if self._silence is not None and not self._silence.expired():
            self._silence.reschedule(asyncio.get_running_loop().time())
        async with self._listed:
            await self._listed.wait_for(lambda: self._whole_lists >= wanted)

    async def run(self) -> NoReturn:
        """Keeps the copy up to date until cancelled. Only what `on_events` or `on_quarantine` raises gets out."""
        while True:
            wait_for_s = await self._attempt()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_for_s):
                    await self._asked.wait()

    async def _attempt(self) -> float:
        """Lists if need be and watches to the end. Gives the seconds to wait before the next attempt."""
        try:
            while self._must_list or self._asked.is_set():
                await self._list()
            await self._watch()
        except Gone as error:
            self._must_list = True
            self._failed(error)
        except ApiError as error:
            if isinstance(error, NotFound | Forbidden) and self._may_be_unserved:
                return await self._unserved(error)
            self._failed(error)
            return self._backoff.pause_s(self._failures, error.retry_after_s)
        # Gone and a quiet end are answered at once, unless the answer to the one before led straight to this one.
        return self._backoff.pause_s(self._failures - 1)

    async def _unserved(self, error: ApiError) -> float:
        """Goes on to the next version. Where the last one is not served either, or we have no right to it, there is
        nothing to follow. Gives the seconds to wait before the next attempt."""
        self._must_list = True
        self._last_rv = ""
        self._last_activity = asyncio.get_running_loop().time()
        served = self._versions.index(self.resource) + 1
        self.resource = self._versions[served % len(self._versions)]
        if served < len(self._versions):
            return 0.0
        if not self.synced.is_set() or self._objects:
            _log.info("nothing is read of %s: %s", self.resource, error)
        self._remove_ghosts(set())
        self._tell_served(is_served=False)
        self.last_error = None
        self.synced.set()
        await self._is_whole(self._begun_lists)
        return UNSERVED_PAUSE_S

    async def _list(self) -> None:
        self._asked.clear()
        self._begun_lists = this_list = self._begun_lists + 1
        seen: set[Key] = set()
        continue_token: str | None = None
        while True:
            page = await self._api.list(
                self.resource,
                limit=PAGE_SIZE,
                continue_token=continue_token,
                field_selector=self._field_selector,
                label_selector=self._label_selector,
            )
            self._last_activity = asyncio.get_running_loop().time()
            if is_newer(self._last_rv, page.resource_version):
                raise Unavailable(
                    f"the API server lists resourceVersion {page.resource_version}, older than {self._last_rv}"
                )
            events: list[Event[T]] = []
            for number, document in enumerate(page.items, start=1):
                head = self._head(document)
                seen.add(NAMELESS if head is None else self._take(document, head, events))
                if number % BREATH == 0:
                    await asyncio.sleep(0)
            self._tell(events)
            continue_token = page.continue_token
            if continue_token is None:
                break
        self._remove_ghosts(seen)
        self._tell_served(is_served=True)
        self._last_rv = page.resource_version
        self._must_list = False
        self.last_error = None
        if self.synced.is_set():
            self.relists_total += 1
        self.synced.set()
        await self._is_whole(this_list)

    def _tell_served(self, *, is_served: bool) -> None:
        if self._is_served is not is_served and self._on_served is not None:
            self._on_served(is_served)
        self._is_served = is_served

    async def _is_whole(self, number: int) -> None:
        """Tells those who wait for this list."""
        self._whole_lists = number
        async with self._listed:
            self._listed.notify_all()

    def _remove_ghosts(self, seen: set[Key]) -> None:
        ghosts = sorted(self._objects.keys() - seen)
        self.ghosts_removed_total += len(ghosts)
        for key in self._quarantined.keys() - seen:
            del self._quarantined[key]
        self._tell([self._removed(key) for key in ghosts])

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        opened = loop.time()
        stream = self._api.watch(
            self.resource,
            resource_version=self._last_rv,
            timeout_s=WATCH_TIMEOUT_S + int(self._jitter() * WATCH_TIMEOUT_S),
            field_selector=self._field_selector,
            label_selector=self._label_selector,
        )
        is_accepted = False
        async with aclosing(stream):
            while (batch := await self._next(stream, is_accepted=is_accepted)) is not None:
                is_accepted = True
                self._last_activity = loop.time()
                self.last_error = None
                if any(event.kind != "UNREADABLE" for event in batch):
                    self._failures = 0
                self._tell(self._followed(batch))
        if loop.time() - opened >= HEALTHY_STREAM_S:
            self._failures = 0
        else:
            self._failures += 1

    async def _next(
        self, stream: AsyncGenerator[Sequence[WatchEvent], None], *, is_accepted: bool
    ) -> Sequence[WatchEvent] | None:
        """The next batch; None at the end of the stream, after INACTIVITY_S of silence, or where a list is asked for.

        Raises Unavailable where the server has not even accepted the watch by then.
        """
        try:
            async with asyncio.timeout(0.0 if self._asked.is_set() else INACTIVITY_S) as self._silence:
                return await anext(stream, None)
        except TimeoutError:
            if is_accepted or self._asked.is_set():
                return None
            raise Unavailable(f"the API server did not answer a watch for {INACTIVITY_S:.0f} s") from None
        finally:
            self._silence = None

    def _followed(self, batch: Sequence[WatchEvent]) -> list[Event[T]]:
        """Takes the events of a batch into the copy and gives what they changed. Of each object the last one counts
        alone: a Pod that starts passes through three states within a moment, and it costs most to decode them."""
        said: dict[Key, tuple[WatchEvent, Head]] = {}
        for event in batch:
            head = self._head(event.document, is_bookmark=event.kind == "BOOKMARK")
            if head is None:
                self._must_list = True  # once this watch is over
                continue
            if not is_newer(head.resourceVersion, self._last_rv):
                continue
            self._last_rv = head.resourceVersion
            if event.kind != "BOOKMARK":
                key = Key(head.namespace, head.name)
                said.pop(key, None)  # it is told where its last word stands
                said[key] = (event, head)
        events: list[Event[T]] = []
        for event, head in said.values():
            self._take(event.document, head, events, deleted=event.kind == "DELETED")
        return events

    def _take(self, document: bytes, head: Head, events: list[Event[T]], *, deleted: bool = False) -> Key:
        """Takes one object into the copy, adds what that changed to `events`, and gives its key."""
        key = Key(head.namespace, head.name)
        value = None if deleted else self._decoded(key, document)
        if deleted:
            self._quarantined.pop(key, None)
        old = self._objects.get(key)
        if old is not None and (value is None or self._uids[key] != head.uid):
            events.append(self._removed(key))
            old = None
        if value is not None:
            self._objects[key] = value
            self._uids[key] = head.uid
            if old is None:
                events.append(Event("ADDED", key, None, value))
            elif old != value:
                events.append(Event("MODIFIED", key, old, value))
        return key

    def _head(self, document: bytes, *, is_bookmark: bool = False) -> Head | None:
        """Which object this is; None if unknown."""
        try:
            head = head_of(document)
        except NoHead as error:
            self._quarantine(NAMELESS, error)
            return None
        if not head.name and not is_bookmark:
            self._quarantine(NAMELESS, NoHead("it has no name"))
            return None
        return head

    def _decoded(self, key: Key, document: bytes) -> T | None:
        try:
            value = self._decode(document)
        except Exception as error:  # a decoder may raise anything, and no object may stop the stream
            self._quarantine(key, error)
            return None
        self._quarantined.pop(key, None)
        return value

    def _quarantine(self, key: Key, error: Exception) -> None:
        # As text: an exception holds on to the frames that it went through, and so to the whole document.
        reason = " ".join(str(error).split())[:REASON_LENGTH] or type(error).__name__
        before = self._quarantined.get(key)
        self._quarantined[key] = reason
        # Those without a name have as many reasons as there are of them.
        is_news = before is None if key == NAMELESS else before != reason
        if is_news and self._on_quarantine is not None:
            self._on_quarantine(key, reason)

    def _removed(self, key: Key) -> Event[T]:
        del self._uids[key]
        return Event("DELETED", key, self._objects.pop(key), None)

    def _tell(self, events: Sequence[Event[T]]) -> None:
        if events:
            self._on_events(events)

    def _failed(self, error: ApiError) -> None:
        self._failures += 1
        self.watch_errors_total += 1
        if self.last_error is None or self.last_error.message != error.message:
            level = logging.INFO if isinstance(error, Gone) else logging.WARNING  # Gone heals itself
            _log.log(level, "reading %s: %s", self.resource, error)
        self.last_error = error
