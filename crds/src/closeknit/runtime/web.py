"""/healthz, /readyz and /metrics over HTTP, one request on each connection."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from closeknit.runtime.access import Access
from closeknit.runtime.address import Address
from closeknit.runtime.proxied import PROXIED
from closeknit.runtime.turnstile import Turnstile

_log = logging.getLogger(__name__)


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

    def __init__(
        self,
        address: Address,
        vitals: Vitals,
        registry: CollectorRegistry,
        access: Access | None,
        refresh: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`refresh` brings the registry up to date for who may read it, where it is not kept so."""
        self._refresh = refresh
        self._address = address
        self._vitals = vitals
        self._registry = registry
        self._access = access
        application = web.Application()
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._show_metrics)
        application.on_response_prepare.append(_end_after)
        _log.addFilter(_is_no_strangers_mistake)  # once, however often
        self._runner = web.AppRunner(
            application,
            access_log=None,
            logger=_log,
            handler_cancellation=True,  # nobody waits any more for what was asked
            lingering_time=0.0,  # nor for the rest of a body that nobody wants
            shutdown_timeout=0.2,
        )
        self._listener: asyncio.Server | None = None

    async def start(self) -> None:
        """Listens from now on. Raises OSError where it cannot."""
        await self._runner.setup()
        assert self._runner.server is not None  # noqa: S101 - since setup
        self._listener = await asyncio.get_running_loop().create_server(
            Turnstile(self._runner.server), self._address.host or None, self._address.port
        )

    async def stop(self) -> None:
        """Listens no more."""
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()

    @property
    def port(self) -> int:
        """The port it listens on, where any was asked for (0)."""
        assert self._listener is not None  # noqa: S101 - since start
        return int(self._listener.sockets[0].getsockname()[1])

    async def _healthz(self, _: web.Request) -> web.Response:
        return _verdict(self._vitals.faults(), 500)

    async def _readyz(self, _: web.Request) -> web.Response:
        return _verdict(self._vitals.gaps(), 503)

    async def _show_metrics(self, request: web.Request) -> web.Response:
        if self._access is not None:
            authorization = request.headers.get("Authorization") or request.headers.get(PROXIED)
            status = await self._access.status(authorization, request.path, request.remote or "")
            if status != 200:
                return web.Response(status=status)
        if self._refresh is not None:
            await self._refresh()
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _verdict(complaints: list[str], status: int) -> web.Response:
    return web.Response(text="\n".join(complaints), status=status) if complaints else web.Response(text="ok")


async def _end_after(_: web.Request, response: web.StreamResponse) -> None:
    response.headers["Connection"] = "close"
    response.force_close()


def _is_no_strangers_mistake(record: logging.LogRecord) -> bool:
    """Whether a log line of the server's is about more than bytes that are no HTTP."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))
