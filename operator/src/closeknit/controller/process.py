"""Everything that runs inside the operator's process, wired together."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from functools import partial
from importlib.metadata import version
from itertools import count

from closeknit.cluster.cluster import Cluster
from closeknit.controller import interpreter
from closeknit.controller.gauges.metered_api import MeteredApi
from closeknit.controller.gauges.ranks import LIMIT, rank_info
from closeknit.controller.gauges.totals import totals
from closeknit.controller.leader.fenced_api import FencedApi
from closeknit.controller.leader.leadership import Elected, Election, Leadership, Unopposed
from closeknit.controller.loop import SchedulingLoop
from closeknit.controller.mapserver.feed import MapFeed
from closeknit.controller.mapserver.pages import MapPages
from closeknit.controller.mapserver.viewers import Viewers
from closeknit.controller.metrics import Metrics, utc_now
from closeknit.controller.vitals import OperatorVitals
from closeknit.controller.watched_cluster import WatchedCluster
from closeknit.controller.worker import ThreadWorker
from closeknit.controller.writes.capacity_writes import CapacityWrites
from closeknit.controller.writes.cluster_writes import ClusterWrites
from closeknit.controller.writes.workload_writes import write_workloads
from closeknit.controller.writes.write_slots import WriteSlots, in_turn
from closeknit.controller.writes.writes import Writes
from closeknit.kube.api import Api
from closeknit.lifecycle.capacity.capacity_news import NOTHING_ASKED, CapacityPolicy, capacity_news
from closeknit.lifecycle.device_taints import DeviceTaints, taint_news
from closeknit.lifecycle.kueue.workload_news import workload_news
from closeknit.lifecycle.overview.summary import summary
from closeknit.lifecycle.topology_status import TopologyNews, lemon_news, silences, topology_news
from closeknit.placement.fragmentation import Fragmentation, fragmentation
from closeknit.runtime.access import Access
from closeknit.runtime.address import Address
from closeknit.runtime.responsive import measure_lag
from closeknit.runtime.serving import Certificate
from closeknit.runtime.web import WebServer
from closeknit.scheduling.queue.entries import queue_place

GAUGES_S = 5.0  # as often as anybody scrapes
ASKED_S = 5.0  # nodes take minutes to come
ASKED_AGAIN_S = 1.0  # while placeholder Pods are there: a gang that is placed waits until those on its nodes are gone
QUEUED_S = 0.2  # Kueue hears of a job, and gets quota back, that soon
QUEUED_AGAIN_S = 5.0  # after a refusal: somebody has to change something, or Kueue has just done so
FRAGMENTATION_S = 30.0  # 17 to 27 ms on 5,000 nodes, of the thread that decides
TOLD_S = 30.0  # status of the cluster as a whole: free GPUs change with each booking, and no decision reads them
EVENTS_PER_LOOK = 16  # of nodes: of a fleet whose agents all end at once most are told later, some every half minute

_log = logging.getLogger(__name__)


def end_at_once(words: str) -> None:
    """Ends the process where it stands: another one may lead, and nothing that is under way here may go on."""
    del words  # the log has them
    logging.shutdown()
    os._exit(1)


class Process:
    """Reflectors, the scheduling loop and the web server over one Api; with an election one of several replicas."""

    def __init__(  # noqa: PLR0913 -- what the command line says
        self,
        api: Api,
        metrics_address: Address,
        access: Access | None,
        election: Election | None = None,
        *,
        sidecar_image: str = "",
        force_deletes: bool = False,
        device_taints: DeviceTaints = DeviceTaints.NEVER,
        capacity: CapacityPolicy = NOTHING_ASKED,
        rank_info_limit: int = LIMIT,
        certificate: Certificate | None = None,
        shows_map: bool = True,
        now: Callable[[], datetime] = utc_now,
        on_lost: Callable[[str], None] = end_at_once,
    ) -> None:
        """`access` None: everyone who reaches the address may read the metrics and the map. `sidecar_image` empty: no
        gang restarts in place. `force_deletes`: Pods on dead nodes are deleted by force.
        `rank_info_limit`: no closeknit_rank_info while there are more ranks. `certificate`
        None: plain HTTP. `on_lost` is called when another replica may lead."""
        self.metrics = Metrics(now)
        api = MeteredApi(api, self.metrics.count_request)
        self.watched = WatchedCluster(api, self.wake, sidecar_image, force_deletes=force_deletes)
        self._rank_info_limit = rank_info_limit
        self._device_taints = device_taints
        self._capacity = capacity
        self._worker = ThreadWorker()
        self._free: Fragmentation | None = None
        self._now = now
        self.leadership: Leadership = (
            Unopposed(self.watched) if election is None else Elected(api, self.watched, election, on_lost)
        )
        self.metrics.watch(self.watched, self.leadership)
        self._fence = FencedApi(api, lambda: self.leadership.holds)
        self._slots = WriteSlots(self._fence, self.metrics.count_write)
        self._writes = ClusterWrites(self._slots, now, socket.gethostname())
        writes = Writes(self._slots, now, socket.gethostname())
        self.loop = SchedulingLoop(self.watched, self.leadership, writes, self.metrics, now, self._worker)
        self.vitals = OperatorVitals(self.watched, self.leadership, self.loop)
        self._map = MapFeed(self._seen, lambda: self._free, self._worker.run, now, version("closeknit"))
        pages = MapPages(self._map, Viewers(access, self._namespaces)).handlers() if shows_map else {}
        self.web = WebServer(
            metrics_address,
            self.vitals,
            self.metrics.registry,
            access,
            self.metrics.refresh,
            written=lambda: self.metrics.text,
            certificate=certificate,
            pages=pages,
        )

    def _seen(self) -> Cluster | None:
        return self.watched.cluster if self.watched.is_synced else None

    def _namespaces(self) -> list[str]:
        return sorted({job.namespace for job in self.watched.cluster.jobs})

    def wake(self) -> None:
        """Has the loop look again."""
        self.loop.wake()

    async def drain(self) -> None:
        """Begins no further write, and returns once all are answered, or after some seconds."""
        await self._fence.drain()

    async def run(self) -> None:
        """Runs until cancelled, or until a part of it fails. The Lease is given back where no write is under way any
        more; `drain` before a cancellation lets those of every part end."""
        interpreter.share_the_interpreter()
        async with AsyncExitStack() as ends:
            await self.web.start()
            ends.push_async_callback(self.web.stop)
            ends.push_async_callback(self._release)
            ends.push_async_callback(self.loop.stop)
            ends.push_async_callback(self.drain)  # also where a mistake of ours has ended a part
            async with asyncio.TaskGroup() as parts:
                parts.create_task(self.watched.run(), name="watched")
                parts.create_task(self.leadership.run(), name="leadership")
                parts.create_task(self.loop.run(), name="scheduling loop")
                parts.create_task(self._show(), name="gauges")
                parts.create_task(self._show_free(), name="fragmentation")
                parts.create_task(self._tell(), name="topology status")
                parts.create_task(self._queue(), name="Kueue")
                parts.create_task(self._ask(), name="capacity")
                parts.create_task(measure_lag(self.metrics.loop_lag.observe), name="lag")
                parts.create_task(self._settle(), name="heap")
                parts.create_task(self._map.run(), name="map")

    async def _release(self) -> None:
        """Lets another replica lead, unless something of ours may still be written: then the Lease runs out."""
        if self._fence.is_drained:
            await self.leadership.release()

    async def _show(self) -> None:
        """Keeps the gauges of the whole cluster up to date, away from decisions and scrapes. Only the leader's: they
        would count twice in a sum over replicas."""
        shown: Cluster | None = None
        await self.loop.begun.wait()
        while True:
            if self.watched.is_synced and (cluster := self.watched.cluster) is not shown:
                self.metrics.show(await self._worker.run(partial(totals, cluster, self._now())))
                ranks = partial(rank_info, cluster, self._rank_info_limit)
                self.metrics.show_ranks(await self._worker.run(ranks))
                shown = cluster
            await asyncio.sleep(GAUGES_S)

    async def _show_free(self) -> None:
        """The same of how scattered free GPUs are, which costs more and is read over hours."""
        shown: Cluster | None = None
        await self.loop.begun.wait()
        while True:
            is_ready = self.watched.is_synced and not self.watched.has_new_machine  # the loop learns those in steps
            if is_ready and (cluster := self.watched.cluster) is not shown:
                try:
                    free = await self._worker.run(partial(fragmentation, cluster, self.loop.tables))
                except Exception:  # a number that no decision reads must not end the operator
                    _log.exception("fragmentation was not measured")
                    self.metrics.broken_decisions.inc()
                else:
                    self.metrics.show_free(free)
                    self._free = free
                shown = cluster
            await asyncio.sleep(FRAGMENTATION_S)

    async def _tell(self) -> None:
        """Tells in ClusterTopologies what was found of them, in NodeTopologies which runs ended by their nodes, in
        DeviceTaintRules which GPUs are unhealthy, and in Events which agents are silent: what is news."""
        seen: Cluster | None = None
        told: set[str] = set()
        await self.loop.begun.wait()
        for look in count():
            if (cluster := self.watched.cluster) is not seen:
                try:
                    news = await self._worker.run(partial(self._news, cluster, self._now()))
                    silent = await self._worker.run(partial(silences, cluster))
                    lemons = await self._worker.run(partial(lemon_news, cluster, self._now()))
                    taints = await self._worker.run(partial(taint_news, cluster, self._device_taints))
                except Exception:  # no decision reads it
                    _log.exception("what is told of the cluster was not found")
                    self.metrics.broken_decisions.inc()
                else:
                    for each in news:
                        await self._writes.tell_topology(each)
                    for lemon in in_turn(lemons, EVENTS_PER_LOOK, look):
                        await self._writes.tell_lemon(lemon)
                    await self._writes.taint(taints, EVENTS_PER_LOOK, look)
                    told &= {notice.name for notice in silent.values()}
                    left = [(node, notice) for node, notice in silent.items() if notice.name not in told]
                    for node, notice in left[:EVENTS_PER_LOOK]:
                        await self._writes.tell_node(node, notice)
                        told.add(notice.name)
                    is_left = (
                        bool(news or lemons or taints.missing or taints.gone) or len(left) > EVENTS_PER_LOOK
                    )  # what was refused is found again
                    seen = None if is_left else cluster
            await asyncio.sleep(TOLD_S)

    async def _queue(self) -> None:
        """Keeps the Workloads of jobs in Kueue's queues as their jobs need them."""
        seen: Cluster | None = None
        await self.loop.begun.wait()
        for look in count():
            pause_s = QUEUED_S
            if (cluster := self.watched.cluster) is not seen:
                try:
                    news = await self._worker.run(partial(workload_news, cluster, self._now()))
                    is_done = await write_workloads(self._slots, news, look)
                except Exception:  # the other jobs go on
                    _log.exception("Workloads were not kept up")
                    self.metrics.broken_decisions.inc()
                    is_done = False
                seen, pause_s = (cluster, QUEUED_S) if is_done else (None, QUEUED_AGAIN_S)
            await asyncio.sleep(pause_s)

    async def _ask(self) -> None:
        """Asks autoscalers for nodes, for jobs that wait for some."""
        await self.loop.begun.wait()
        hopeless: tuple[str, ...] = ()
        writes = CapacityWrites(self._slots, self._now)
        while True:
            cluster, policy = self.watched.cluster, self._capacity
            is_possible = cluster.capacity.is_served or policy.placeholder_image or cluster.capacity.placeholders
            if is_possible and not self.watched.has_new_machine:
                try:
                    news = await self._worker.run(
                        partial(capacity_news, cluster, self.loop.tables, policy, self._now(), queue_place, hopeless)
                    )
                    refused = await writes.ask(news)
                    self.watched.note_asking((*news.notes, *refused), news.forgotten)
                    hopeless = news.hopeless
                except Exception:  # no decision reads it
                    _log.exception("nodes were not asked for")
                    self.metrics.broken_decisions.inc()
            await asyncio.sleep(ASKED_AGAIN_S if cluster.capacity.placeholders else ASKED_S)

    def _news(self, cluster: Cluster, now: datetime) -> tuple[TopologyNews, ...]:
        return topology_news(cluster, now, summary(cluster, self._free, now, version("closeknit")))

    async def _settle(self) -> None:
        """Keeps the heap's upkeep short once it is large."""
        await self.watched.synced()
        interpreter.freeze_heap()


async def ended(task: asyncio.Task[None]) -> None:
    """Waits for the end of a task after cancelling it. Raises what it ended with, if that was something else."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
