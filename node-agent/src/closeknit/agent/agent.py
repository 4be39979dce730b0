"""One agent: reads its machine again and again, and publishes what changed."""

import asyncio
import dataclasses
import logging
from datetime import UTC, datetime
from time import monotonic
from typing import NoReturn

from pydantic import ValidationError

from closeknit.agent.discovery.course import Course, followed
from closeknit.agent.discovery.readings import Readings
from closeknit.agent.discovery.remembered import remembered
from closeknit.agent.discovery.topology import Discovery, discover
from closeknit.agent.kubelet.source import Kubelet
from closeknit.agent.publish import NotYet, Publisher
from closeknit.agent.source import Source, SourceError
from closeknit.kube.backoff import Backoff
from closeknit.kube.errors import ApiError

_log = logging.getLogger(__name__)

# What nobody changed is compared with the API server once a minute at the usual interval: an object that was deleted by
# hand comes back, and a heartbeat is written when it is due.
READINGS_PER_LOOK = 12

# Two GPUs that hang, and a driver that opens slowly after each, take 2 min; a pause after failures, at most one more.
LONGEST_READING_S = 600.0

_BACKOFF = Backoff(first_s=1.0, longest_s=60.0)


class Agent:
    """The agent of one node. Many run side by side on one event loop, where machines are simulated."""

    def __init__(
        self,
        node: str,
        source: Source,
        publisher: Publisher,
        *,
        interval_s: float,
        kubelet: Kubelet | None = None,
        backoff: Backoff = _BACKOFF,
    ) -> None:
        """Without a kubelet nothing is said of who holds which GPUs: a simulated machine has none."""
        self._node = node
        self._source = source
        self._publisher = publisher
        self._kubelet = kubelet
        self._interval_s = interval_s
        self._backoff = backoff
        self._read: Readings | None = None
        self._last: tuple[Readings, Discovery] | None = None  # with what is remembered
        self._course = Course()
        self._is_published = False
        self._heard_at = monotonic()

    async def run(self) -> NoReturn:
        """Reads and publishes for ever. What fails is tried again, sooner at first; a failure is logged once."""
        failures = 0
        complaint = ""
        published: Discovery | None = None
        readings = 0  # since then
        is_news = True  # what the first round found to do, and what each later one wrote
        while True:
            written: list[str] = []
            try:
                found = await self._discovery()
                readings += 1
                if found != published or readings >= READINGS_PER_LOOK:
                    written = await self._publisher.publish(found, datetime.now(UTC))
                    published, readings = found, 0
            except (ApiError, NotYet, SourceError, ValidationError) as error:  # the last: what no NodeTopology can hold
                failures += 1
                published = None
                if str(error) != complaint:
                    _log.warning("not published, trying again: %s", error, extra={"node": self._node})
                complaint = str(error)
                wait_s = self._backoff.pause_s(failures, error.retry_after_s if isinstance(error, ApiError) else None)
            else:
                failures, complaint = 0, ""
                if written or is_news:
                    words = ", ".join(written) or "nothing, all is up to date"
                    _log.info("wrote %s", words, extra={"node": self._node})
                is_news = False
                self._is_published = True
                wait_s = self._interval_s
            await asyncio.sleep(wait_s)

    def faults(self) -> list[str]:
        """Why the process should be started anew: a reading that does not end, which each of its deadlines forbids."""
        silence_s = monotonic() - self._heard_at
        return [f"no reading has begun for {silence_s:.0f} s"] if silence_s > LONGEST_READING_S else []

    def gaps(self) -> list[str]:
        """What is still missing before the node's facts are there."""
        return [] if self._is_published else ["nothing has been published yet"]

    async def _discovery(self) -> Discovery:
        # In a thread: a driver that hangs must not keep this process from ending when it is told to.
        self._heard_at = monotonic()
        found = self._discovered(await asyncio.to_thread(self._source.read))
        if self._kubelet is None:
            return found
        known = await self._kubelet.allocations()
        return dataclasses.replace(found, allocations=known.held, findings=(*found.findings, known.finding))

    def _discovered(self, read: Readings) -> Discovery:
        if self._last is not None and read == self._read and not self._course.gpus:
            return self._last[1]  # nothing has changed, and nothing was happening that time alone could end
        readings = remembered(self._last and self._last[0], read)
        course = followed(self._course, readings, monotonic())
        if self._last is None or (readings, course) != (self._last[0], self._course):
            self._last = readings, discover(readings, self._source.method, course)
        self._read, self._course = read, course
        return self._last[1]
