"""The map as all who watch it share it: worked out once a second at most, and not at all while nobody watches."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from functools import partial

from closeknit.cluster.cluster import Cluster
from closeknit.placement.fragmentation import Fragmentation
from closeknit.webmap.frames import Veil, frames
from closeknit.webmap.scene import EMPTY_SCENE, Scene, scene

SCENE_S = 1.0  # from one to the next: people read no faster
LOOK_S = 0.05  # for a cluster that has changed, by identity: a change is shown within 200 ms
MOST_TOLD = 8  # ways to one scene that are kept, whole ones among them: most watchers have the one before it

_log = logging.getLogger(__name__)


class MapFeed:
    """Follows the cluster in `run` while somebody watches."""

    def __init__(
        self,
        cluster: Callable[[], Cluster | None],
        free: Callable[[], Fragmentation | None],
        work: Callable[[Callable[[], Scene]], Awaitable[Scene]],
        now: Callable[[], datetime],
        version: str,
    ) -> None:
        """`cluster` gives None until everything was read. `work` does what takes milliseconds, away from the event
        loop."""
        self.scene: Scene | None = None
        """The last one; None before the first."""
        self.scenes = 0
        """How many were worked out."""
        self._cluster = cluster
        self._free = free
        self._work = work
        self._now = now
        self._version = version
        self._watchers = 0
        self._watched = asyncio.Event()
        self._changed = asyncio.Event()
        self._left_at = float("inf")
        """When the last watcher left, on the event loop's clock."""
        self._last: Scene | None = None
        """The last one that was worked out: `scene` is None where it may be old."""
        self._told: dict[tuple[Scene | None, Veil], tuple[bytes, ...]] = {}
        """What leads to the last scene from each one that some watcher has."""

    def enter(self) -> None:
        """Somebody watches. After a time without watchers he waits for a new scene: the last one is old."""
        if self._watchers == 0 and asyncio.get_running_loop().time() - self._left_at > SCENE_S:
            self.scene = None
        self._watchers += 1
        self._watched.set()

    def leave(self) -> None:
        """Somebody watches no more."""
        self._watchers -= 1
        if self._watchers == 0:
            self._watched.clear()
            self._left_at = asyncio.get_running_loop().time()

    async def change(self, timeout_s: float) -> None:
        """Returns at the next scene, or after so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()

    def frames(self, seen: Scene | None, veil: Veil) -> tuple[bytes, ...]:
        """What a watcher of `seen` lacks of the last scene."""
        assert self.scene is not None  # noqa: S101 - the caller has seen that it is there
        key = seen, veil
        if key not in self._told:
            if len(self._told) >= MOST_TOLD:
                del self._told[next(iter(self._told))]
            self._told[key] = frames(seen, self.scene, veil, self._now())
        return self._told[key]

    async def run(self) -> None:
        """Follows for ever."""
        shown: tuple[Cluster, Fragmentation | None] | None = None
        while True:
            await self._watched.wait()
            cluster, free = self._cluster(), self._free()
            if cluster is None or (shown is not None and shown[0] is cluster and shown[1] is free):
                if cluster is not None and self.scene is None and self._last is not None:
                    self._show(self._last)  # nothing has changed since
                await asyncio.sleep(LOOK_S)
                continue
            shown = cluster, free
            before = self._last or self.scene or EMPTY_SCENE
            draw = partial(scene, cluster, free, self._now(), self._version, before)
            try:
                found = await self._work(draw)
            except Exception:  # no decision reads it
                _log.exception("the map was not drawn")
            else:
                self._show(found)
            await asyncio.sleep(SCENE_S)

    def _show(self, found: Scene) -> None:
        if found.faults and (self.scene is None or self.scene.faults != found.faults):
            _log.error("a mistake of ours keeps jobs out of the map", extra={"jobs": found.faults})
        self.scenes += found is not self._last
        self.scene = self._last = found
        self._told = {}
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
