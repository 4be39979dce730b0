"""/healthz, /readyz, /metrics and further pages over HTTP or HTTPS, one request on each connection."""

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from closeknit.runtime.access import Access
from closeknit.runtime.address import Address
from closeknit.runtime.exchange import Exchange, Handler, HttpRequest, Reply
from closeknit.runtime.proxied_caller import PROXIED
from closeknit.runtime.serving import Certificate
from closeknit.runtime.turnstile import Turnstile


class Vitals(Protocol):
    """What a process knows of its own well-being; asked on every request, so both answers must be quick."""

    def faults(self) -> list[str]:
        """Why the process should be restarted; empty while it is well."""
        ...

    def gaps(self) -> list[str]:
        """What is still missing before the process does its work; empty once it does."""
        ...


class WebServer:
    """Serves until stopped. `access` None: everybody who can reach it may read everything, by a name that is ours: a
    page of another site, whose name leads here by DNS, may not."""

    def __init__(
        self,
        address: Address,
        vitals: Vitals,
        registry: CollectorRegistry,
        access: Access | None,
        refresh: Callable[[], Awaitable[None]] | None = None,
        written: Callable[[], bytes] = bytes,
        certificate: Certificate | None = None,
        pages: Mapping[str, Handler] | None = None,
    ) -> None:
        """`refresh` brings the registry up to date for who may read it, where it is not kept so. `written` gives
        further families, as they go over the wire. `certificate` None: plain HTTP. `pages` are further paths, and what
        answers there: each says itself who may read it."""
        self._refresh = refresh
        self._written = written
        self._address = address
        self._vitals = vitals
        self._registry = registry
        self._access = access
        routes: Mapping[str, Handler] = {
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/metrics": self._show_metrics,
            **(pages or {}),
        }
        self._turnstile = Turnstile(partial(Exchange, routes), None if certificate is None else certificate.context)
        self._listener: asyncio.Server | None = None

    async def start(self) -> None:
        """Listens from now on. Raises OSError where it cannot."""
        self._listener = await asyncio.get_running_loop().create_server(
            self._turnstile, self._address.host or None, self._address.port
        )

    async def stop(self) -> None:
        """Listens no more, and ends the connections that there are."""
        if self._listener is not None:
            self._listener.close()
        self._turnstile.close()

    @property
    def port(self) -> int:
        """The port it listens on, where any was asked for (0)."""
        assert self._listener is not None  # noqa: S101 - since start
        return int(self._listener.sockets[0].getsockname()[1])

    def exposition(self) -> bytes:
        """What a scrape gets. Some 10,000 lines take 30 ms, so that a thread writes them, and not the event loop."""
        return generate_latest(self._registry) + self._written()

    async def _healthz(self, _: HttpRequest) -> Reply:
        return _verdict(self._vitals.faults(), 500)

    async def _readyz(self, _: HttpRequest) -> Reply:
        return _verdict(self._vitals.gaps(), 503)

    async def _show_metrics(self, request: HttpRequest) -> Reply:
        if self._access is None and not is_own_name(request):
            return Reply(403, b"this is not a name of this server: ask localhost, or an address")
        if self._access is not None:
            status = await self._access.status(shown(request), request.path, request.address)
            if status != 200:
                return Reply(status)
        if self._refresh is not None:
            await self._refresh()
        return Reply(200, await asyncio.to_thread(self.exposition), CONTENT_TYPE_LATEST)


def shown(request: HttpRequest) -> str | None:
    """By what a caller shows who it is, whether it comes itself or through the API server."""
    return request.headers.get("authorization") or request.headers.get(PROXIED.lower())


def is_own_name(request: HttpRequest) -> bool:
    """Whether the Host is one that no stranger can point at us by DNS: localhost, an address, a name of the cluster."""
    host = request.headers.get("host", "")
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if name == "localhost" or name.endswith((".localhost", ".svc", ".svc.cluster.local")):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _verdict(complaints: list[str], status: int) -> Reply:
    return Reply(status, "\n".join(complaints).encode()) if complaints else Reply(200, b"ok")
