"""One agent: reads its machine again and again, and publishes what changed."""

import asyncio
import dataclasses
import logging
from datetime import UTC, datetime
from typing import NoReturn

from pydantic import ValidationError

from closeknit.agent.discovery.readings import Readings
from closeknit.agent.discovery.topology import Discovery, discover
from closeknit.agent.kubelet.source import Kubelet
from closeknit.agent.publish import NotYet, Publisher
from closeknit.agent.source import Source, SourceError
from closeknit.kube.backoff import Backoff
from closeknit.kube.errors import ApiError

_log = logging.getLogger(__name__)

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
        self._last: tuple[Readings, Discovery] | None = None

    async def run(self) -> NoReturn:
        """Reads and publishes for ever. What fails is tried again, sooner at first; a failure is logged once."""
        failures = 0
        complaint = ""
        is_news = True  # what the first round found to do, and what each later one wrote
        while True:
            try:
                written = await self._publisher.publish(await self._discovery(), datetime.now(UTC))
            except (ApiError, NotYet, SourceError, ValidationError) as error:  # the last: what no NodeTopology can hold
                failures += 1
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
                wait_s = self._interval_s
            await asyncio.sleep(wait_s)

    async def _discovery(self) -> Discovery:
        # In a thread: a driver that hangs must not keep this process from ending when it is told to.
        readings = await asyncio.to_thread(self._source.read)
        if self._last is None or self._last[0] != readings:
            self._last = readings, discover(readings, self._source.method)
        found = self._last[1]
        if self._kubelet is None:
            return found
        known = await self._kubelet.allocations()
        return dataclasses.replace(found, allocations=known.held, findings=(*found.findings, known.finding))
