"""One agent: reads its machine again and again, and publishes what changed."""

import asyncio
import dataclasses
import logging
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from time import monotonic
from typing import NoReturn

from pydantic import ValidationError

from closeknit.agent.discovery.health.history import History, followed, recalled
from closeknit.agent.discovery.readings.carried_gpus import remembered
from closeknit.agent.discovery.readings.readings import Readings
from closeknit.agent.discovery.topology import Discovery, discover
from closeknit.agent.discovery.usage import traffic_paths
from closeknit.agent.discovery.usage.allocations import Allocations, held_lately
from closeknit.agent.kubelet.kubelet_source import KubeletSource
from closeknit.agent.publish import NotYet, Publisher
from closeknit.agent.sources.source import Source, SourceError
from closeknit.api.nodetopology import NodeTopologySpec
from closeknit.api.nodetopology_status import Allocation, Health
from closeknit.kube.backoff import Backoff
from closeknit.kube.errors import ApiError

_log = logging.getLogger(__name__)

# Two GPUs that hang, and a driver that opens slowly after each, take 2 min; a pause after failures, at most one more.
LONGEST_READING_S = 600.0

_BACKOFF = Backoff(first_s=1.0, longest_s=60.0)

# The first questions of agents that start together are spread over this: a new chart starts a tenth of all at once.
# It leaves a lone one 3 s for all the rest of its first publication.
START_SPREAD_S = 2.0
# Unchanged objects are compared with the API server every one to two minutes, with jitter: 450 requests a second for
# 40,000 agents, however they started. An object that was deleted by hand comes back within that.
LOOK_S = 60.0
HEALTHY = "Healthy"
GPU_ILL = (Health.DEGRADED, Health.UNHEALTHY)


class Agent:
    """The agent of one node. Many run side by side on one event loop, where machines are simulated."""

    def __init__(
        self,
        node: str,
        source: Source,
        publisher: Publisher,
        *,
        interval_s: float,
        kubelet: KubeletSource | None = None,
        backoff: Backoff = _BACKOFF,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Without a kubelet nothing is said of who holds which GPUs: a simulated machine has none.

        `chance` gives 0 to 1, to spread load.
        """
        self._node = node
        self._source = source
        self._publisher = publisher
        self._kubelet = kubelet
        self._interval_s = interval_s
        self._backoff = backoff
        self._chance = chance
        self._read: tuple[Readings, frozenset[str] | None] | None = None  # with the GPUs that Pods held
        self._known: Allocations | None = None
        self._last: tuple[Readings, Discovery] | None = None  # with what is remembered
        self._course = History()
        self._has_recalled = False  # what was published before this agent began
        self._trail = traffic_paths.TrafficPaths()
        self._counted_at = 0.0  # on the loop's clock
        self._is_published = False
        self._heard_at = monotonic()

    async def run(self) -> NoReturn:
        """Reads and publishes for ever. What fails is tried again, sooner at first; a failure is logged once."""
        failures = 0
        complaint = ""
        published: Discovery | None = None
        look_at = 0.0  # on the loop's monotonic clock
        is_news = True  # what the first round found to do, and what each later one wrote
        loop = asyncio.get_running_loop()
        await asyncio.sleep(START_SPREAD_S * self._chance())
        while True:
            written: list[str] = []
            began = loop.time()
            try:
                found = await self._discovery()
                if found != published or loop.time() >= look_at:
                    published = None  # until all of it is
                    written = await self._publisher.publish(found, datetime.now(UTC))
                    published, look_at = found, loop.time() + LOOK_S * (1.0 + self._chance())
            except (ApiError, NotYet, SourceError, ValidationError) as error:  # the last: what no NodeTopology can hold
                failures += 1
                if str(error) != complaint:
                    _log.warning("not published, trying again: %s", error, extra={"node": self._node})
                complaint = str(error)
                wait_s = self._backoff.pause_s(failures, error.retry_after_s if isinstance(error, ApiError) else None)
                # Who waited half a minute for no answer waited in a crowd, and must not come back in it.
                wait_s += (loop.time() - began) * self._chance()
            else:
                failures, complaint = 0, ""
                if written or is_news:
                    words = ", ".join(written) or "nothing, all is up to date"
                    _log.info("wrote %s", words, extra={"node": self._node})
                # The first by chance: those that started together are else together again at each reading.
                wait_s = self._interval_s * (self._chance() if is_news else 1.0)
                is_news = False
                self._is_published = True
            await asyncio.sleep(wait_s)

    def faults(self) -> list[str]:
        """Why the process should be restarted: a reading that does not end, which each of its deadlines forbids."""
        silence_s = monotonic() - self._heard_at
        return [f"no reading has begun for {silence_s:.0f} s"] if silence_s > LONGEST_READING_S else []

    def gaps(self) -> list[str]:
        """What is still missing before the node's facts are there."""
        return [] if self._is_published else ["nothing has been published yet"]

    def gpus(self) -> dict[str, int]:
        """Number of GPUs by health, as they were read last; empty before that."""
        if self._last is None:
            return {}
        found = self._last[1]
        ill = [gpu.state.value for gpu in found.gpus]
        counts = {HEALTHY: len(found.spec.gpus) - len(ill), **{each.value: ill.count(each.value) for each in GPU_ILL}}
        return {health: max(0, number) for health, number in counts.items()}

    async def _discovery(self) -> Discovery:
        # In a thread: a driver that hangs must not keep this process from ending when it is told to.
        self._heard_at = monotonic()
        read = await asyncio.to_thread(self._source.read)
        if not self._has_recalled:
            await self._recall(read)
        if self._kubelet is None:
            return self._discovered(read, None)
        # After the reading: a program that computes was given its GPU before.
        known = await self._kubelet.allocations()
        found = self._discovered(read, held_lately(self._known, known))
        self._known = known
        held = None if known.held is None else await self._with_paths(known.held, found.spec)
        return dataclasses.replace(found, allocations=held, findings=(*found.findings, known.finding))

    async def _recall(self, read: Readings) -> None:
        """Takes up the XIDs that were published before. Raises ApiError, and keeps those of this reading even then."""
        self._course = followed(self._course, read, monotonic())
        published = await self._publisher.published()
        self._has_recalled = True
        if published is not None:
            self._course = recalled(self._course, *published)

    async def _with_paths(self, held: Sequence[Allocation], spec: NodeTopologySpec) -> tuple[Allocation, ...]:
        """These containers' allocations with the ways that their data has moved."""
        now = asyncio.get_running_loop().time()
        if traffic_paths.is_due(self._trail, held, now - self._counted_at):
            traffic = await asyncio.to_thread(self._source.traffic, traffic_paths.wanted(self._trail, held))
            self._trail = traffic_paths.after(
                self._trail, held, traffic, traffic_paths.rdma_ports(spec), traffic_paths.linked(spec)
            )
            self._counted_at = now
        return tuple(each.model_copy(update={"paths": self._trail.paths(each)}) for each in held)

    def _discovered(self, read: Readings, held: frozenset[str] | None) -> Discovery:
        if self._last is not None and (read, held) == self._read and not self._course.gpus:
            return self._last[1]  # nothing has changed, and nothing was happening that time alone could end
        readings = remembered(self._last and self._last[0], read)
        course = followed(self._course, readings, monotonic())
        before = self._read and self._read[1]
        if self._last is None or (readings, course, held) != (self._last[0], self._course, before):
            self._last = readings, discover(readings, self._source.method, course, held)
        self._read, self._course = (read, held), course
        return self._last[1]
