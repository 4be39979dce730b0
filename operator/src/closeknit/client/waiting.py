"""Waits for a state of one job, by a watch of that job alone."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Literal

import msgspec

from closeknit.cli.live.cluster_connection import TRAINING_JOBS
from closeknit.client.client_errors import JobFailed, NoSuchJob
from closeknit.client.seen_job import SeenJob
from closeknit.kube.api import Api
from closeknit.kube.backoff import Backoff
from closeknit.kube.errors import Gone, Transient, Unauthorized

Until = Literal["Running", "Succeeded"]
Progress = Callable[[SeenJob], object]

WATCH_S = 300  # an API server ends a watch after five to ten minutes anyway
SILENT_S = 30  # past that no end comes: a laptop slept, or a NAT has forgotten the connection, which nothing tells
FIRST_S = 60  # so long an API server that is busy, or starts, is asked for the first time
BACKOFF = Backoff(first_s=1.0, longest_s=30.0)  # a person waits: half a minute at most after an outage
REACHED = {"Running": ("Running", "Succeeded"), "Succeeded": ("Succeeded",)}
"""State that is waited for -> states in which a job is that far."""


class _Metadata(msgspec.Struct):
    uid: str = ""


class _Identity(msgspec.Struct):
    metadata: _Metadata


class JobWait:
    """One wait. `last` is the job as it was seen last."""

    def __init__(self, api: Api, namespace: str, name: str, until: Until, progress: Progress | None) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._reached = REACHED[until]
        self._progress = progress
        self._uid = ""
        self._is_refused = False
        """Whether the last request was answered that nobody knows who asks."""
        self.last: SeenJob | None = None

    async def end(self) -> SeenJob:
        """The job once it is that far. Once it was seen, reconnects for as long as that takes. An API server that says
        that it cannot answer now is asked for a minute before that.

        Raises JobFailed, and NoSuchJob for a job that is not there, is deleted meanwhile, or is another one of that
        name by now.
        """
        failures, begun_at = 0, asyncio.get_running_loop().time()
        while True:
            asked_s: float | None = None
            try:
                if (found := await self._read_and_watch()) is not None:
                    return found
                failures = 1  # a watch that ends at once, again and again, costs a read a second at most
            except Unauthorized:  # once: before the next request the login is renewed
                if self.last is None or self._is_refused:
                    raise
                self._is_refused, failures = True, 1
            except Gone:
                failures = 1
            except Transient as error:
                if self.last is None and (not error.code or asyncio.get_running_loop().time() - begun_at > FIRST_S):
                    raise  # where nothing answers, it is a wrong address, most likely
                failures += 1
                asked_s = error.retry_after_s
            await asyncio.sleep(BACKOFF.pause_s(failures, asked_s))

    async def _read_and_watch(self) -> SeenJob | None:
        """The job, if it is that far before the watch ends."""
        selector = f"metadata.name={self._name}"
        page = await self._api.list(TRAINING_JOBS, namespace=self._namespace, field_selector=selector)
        self._is_refused = False
        if not page.items:
            raise self._gone()
        if self._is_reached(page.items[0]):
            return self.last
        changes = self._api.watch(
            TRAINING_JOBS,
            resource_version=page.resource_version,
            timeout_s=WATCH_S,
            namespace=self._namespace,
            field_selector=selector,
        )
        limit = asyncio.timeout(WATCH_S + SILENT_S)
        try:
            async with limit, aclosing(changes) as batches:
                async for events in batches:
                    for event in events:
                        if event.kind == "UNREADABLE":
                            return None
                        if event.kind == "DELETED":
                            raise self._gone()
                        if event.kind != "BOOKMARK" and self._is_reached(event.document):
                            return self.last
        except TimeoutError:
            if not limit.expired():
                raise
        return None

    def _is_reached(self, document: bytes) -> bool:
        uid = msgspec.json.decode(document, type=_Identity).metadata.uid
        if self._uid not in ("", uid):
            raise NoSuchJob(f"{self._namespace}/{self._name} is gone; another job of that name is there")
        self._uid = uid
        seen = SeenJob(document)
        before, self.last = self.last, seen
        if self._progress is not None and (before is None or str(before) != str(seen)):
            self._progress(seen)
        if seen.state == "Failed":
            raise JobFailed(seen)
        return seen.state in self._reached

    def _gone(self) -> NoSuchJob:
        name = f"{self._namespace}/{self._name}"
        return NoSuchJob(f"{name} is gone" if self._uid else f"there is no TrainingJob {name}: submit it first")
