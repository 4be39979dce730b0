"""/healthz, /readyz and /metrics over HTTP."""

import asyncio
import ipaddress
from dataclasses import dataclass

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from closeknit.controller.access import Access
from closeknit.controller.loop import RESYNC_S, SchedulingLoop
from closeknit.controller.metrics import Metrics
from closeknit.controller.sight import Sight

# A watch is silent for 70 s at most, and comes back within 30 s: whoever hears nothing for so long, and of no error
# either, hangs.
SILENCE_S = 180.0
# A decision runs beside the event loop, and the longest that is known takes half a minute (the first on a machine of 16
# GPUs without switches, alone on a core; at a tenth of a core ten times that). What takes this long never ends.
LONGEST_DECISION_S = 900.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen."""

    host: str  # empty: every interface, of IPv4 and of IPv6
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """The address of `127.0.0.1:8080`, `[::1]:8080` or `:8080`, which is every interface. Raises ValueError."""
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65_535:
            raise ValueError(f"{text!r} is not an address such as 127.0.0.1:8080 or :8080")
        return cls(host.strip("[]"), int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class Health:
    """Whether the process does what it is for."""

    def __init__(self, sight: Sight, loop: SchedulingLoop) -> None:
        self._sight = sight
        self._loop = loop

    def faults(self) -> list[str]:
        """Why the process should be started anew; empty while it is well. An API server that is down is no fault."""
        found = [
            f"nothing heard of {source} for {reflector.last_activity_s:.0f} s"
            for source, reflector in self._sight.reflectors.items()
            if reflector.synced.is_set() and reflector.last_error is None and reflector.last_activity_s > SILENCE_S
        ]
        time = asyncio.get_running_loop().time()
        since = self._loop.deciding_since
        if since is not None:
            if time - since > LONGEST_DECISION_S:
                found.append(f"one decision for {time - since:.0f} s")
        elif self._loop.cycles and time - self._loop.beat > RESYNC_S + SILENCE_S:
            found.append(f"no decision for {time - self._loop.beat:.0f} s")
        return found

    def gaps(self) -> list[str]:
        """What is still missing before the first decision; empty after it."""
        unread = [source for source, reflector in self._sight.reflectors.items() if not reflector.synced.is_set()]
        if unread:
            return [f"not read yet: {', '.join(unread)}"]
        return [] if self._loop.cycles else ["no decision yet"]


class WebServer:
    """Serves until stopped. `access` None: everybody who can reach it may read everything."""

    def __init__(self, address: Address, health: Health, metrics: Metrics, access: Access | None) -> None:
        self._address = address
        self._health = health
        self._metrics = metrics
        self._access = access
        application = web.Application()
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._show_metrics)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.2)

    async def start(self) -> None:
        """Listens from now on. Raises OSError where it cannot."""
        await self._runner.setup()
        await web.TCPSite(self._runner, self._address.host or None, self._address.port).start()

    async def stop(self) -> None:
        """Listens no more."""
        await self._runner.cleanup()

    @property
    def port(self) -> int:
        """The port it listens on, where any was asked for (0)."""
        return int(self._runner.addresses[0][1])

    async def _healthz(self, _: web.Request) -> web.Response:
        return _verdict(self._health.faults(), 500)

    async def _readyz(self, _: web.Request) -> web.Response:
        return _verdict(self._health.gaps(), 503)

    async def _show_metrics(self, request: web.Request) -> web.Response:
        if self._access is not None:
            status = await self._access.status(request.headers.get("Authorization"), request.path)
            if status != 200:
                return web.Response(status=status)
        return web.Response(body=generate_latest(self._metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _verdict(complaints: list[str], status: int) -> web.Response:
    return web.Response(text="\n".join(complaints), status=status) if complaints else web.Response(text="ok")
