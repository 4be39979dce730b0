"""/healthz, /readyz and /metrics over HTTP."""

from typing import Protocol

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from closeknit.runtime.access import Access
from closeknit.runtime.address import Address


class Vitals(Protocol):
    """What a process knows of its own well-being; asked on every request, so both answers must be quick."""

    def faults(self) -> list[str]:
        """Why the process should be started anew; empty while it is well."""
        ...

    def gaps(self) -> list[str]:
        """What is still missing before the process does its work; empty once it does."""
        ...


class WebServer:
    """Serves until stopped. `access` None: everybody who can reach it may read everything."""

    def __init__(self, address: Address, vitals: Vitals, registry: CollectorRegistry, access: Access | None) -> None:
        self._address = address
        self._vitals = vitals
        self._registry = registry
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
        return _verdict(self._vitals.faults(), 500)

    async def _readyz(self, _: web.Request) -> web.Response:
        return _verdict(self._vitals.gaps(), 503)

    async def _show_metrics(self, request: web.Request) -> web.Response:
        if self._access is not None:
            status = await self._access.status(request.headers.get("Authorization"), request.path)
            if status != 200:
                return web.Response(status=status)
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _verdict(complaints: list[str], status: int) -> web.Response:
    return web.Response(text="\n".join(complaints), status=status) if complaints else web.Response(text="ok")
