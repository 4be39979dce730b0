"""Requests to the API server of a login: who asks, over which connections, and what it means that there is no answer.

Watches, and all that goes through a proxy, go over an `HttpSession`; everything else over `Connections`.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from math import inf
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

from closeknit.kube.errors import ApiError, LoginError, Unauthorized, Unavailable, error_from_status
from closeknit.kube.http.connections import Connections, HttpResponse
from closeknit.kube.login.login import Login

if TYPE_CHECKING:
    import aiohttp

    from closeknit.kube.http.http_session import HttpSession

CONNECT_TIMEOUT_S = 10.0

Query = Mapping[str, str | int | None]
"""Parameters of a request; those that are None are left out."""


class Requests:
    """Asks one API server, in the name of its login; closed by `close`."""

    def __init__(
        self, login: Login, headers: Mapping[str, str], *, timeout_s: float, sent_within_s: float = inf
    ) -> None:
        """`headers` are those of every request; `timeout_s` is how long an answer may take, and `sent_within_s` how
        long it may be until the request is sent. Raises LoginError."""
        try:
            self._connections = Connections(
                login.host,
                login.tls,
                login.server_name,
                connect_timeout_s=CONNECT_TIMEOUT_S,
                sent_within_s=sent_within_s,
            )
        except ValueError as error:
            raise LoginError(str(error)) from error
        self._login = login
        self._headers = headers
        self._timeout_s = timeout_s
        self._proxy = login.proxy or _proxy_of_environment(login.host)
        self._session: HttpSession | None = None
        self._is_unauthorized = False
        self._renewing = asyncio.Lock()
        # What may be sent for a moment alone is not sent a second time, later.
        self._may_ask_again = sent_within_s == inf

    async def close(self) -> None:
        """Closes all connections and what reads from them."""
        self._login.close()
        self._connections.close()
        if self._session is not None:
            await self._session.close()

    async def answer(
        self,
        method: str,
        path: str,
        query: Query,
        body: bytes | None,
        headers: Mapping[str, str],
        *,
        most_bytes: int | None = None,
    ) -> bytes:
        """Body of a successful answer, with these headers besides. Raises ApiError, and LargeAnswer for more than
        most_bytes."""
        said, target = await self._said(headers), _target(path, query)
        answer = await self._asked(method, target, body, said, most_bytes)
        is_refused = answer.status == HTTPStatus.UNAUTHORIZED
        if is_refused and self._may_ask_again and (again := await self._said_anew(said)) is not None:
            answer = await self._asked(method, target, body, again, most_bytes)
        self._is_unauthorized = answer.status == HTTPStatus.UNAUTHORIZED
        if not 200 <= answer.status <= 299:
            raise self._refusal(answer)
        return answer.body

    async def _asked(
        self, method: str, target: str, body: bytes | None, said: Mapping[str, str], most_bytes: int | None
    ) -> HttpResponse:
        try:
            if self._proxy is not None:
                return await self._opened().answer(
                    method, target, body, said, timeout_s=self._timeout_s, most_bytes=most_bytes
                )
            lines = "".join([f"{name}: {value}\r\n" for name, value in said.items()])
            async with asyncio.timeout(self._timeout_s):
                return await self._connections.ask(method, target, lines, body, most_bytes=most_bytes)
        except OSError as error:
            raise self._lost(error) from error

    @asynccontextmanager
    async def stream(self, path: str, query: Query) -> "AsyncGenerator[aiohttp.ClientResponse, None]":
        """The answer to a GET whose body never ends. What goes wrong while it is read is raised as Unavailable, too."""
        from closeknit.kube.http.http_session import whole  # noqa: PLC0415 -- as in `_opened`

        said, target = await self._said({}), _target(path, query)
        try:
            async with AsyncExitStack() as streams:
                response = await streams.enter_async_context(self._opened().stream(target, said))
                if response.status == HTTPStatus.UNAUTHORIZED and (again := await self._said_anew(said)) is not None:
                    await streams.aclose()
                    response = await streams.enter_async_context(self._opened().stream(target, again))
                self._is_unauthorized = response.status == HTTPStatus.UNAUTHORIZED
                if response.status != HTTPStatus.OK:
                    raise self._refusal(await whole(response))
                yield response
        except OSError as error:
            raise self._lost(error) from error

    @asynccontextmanager
    async def websocket(
        self, path: str, query: Query, protocol: str
    ) -> "AsyncGenerator[aiohttp.ClientWebSocketResponse, None]":
        """A WebSocket to this path. Raises ApiError where there is none."""
        from closeknit.kube.http.http_session import RefusedUpgrade  # noqa: PLC0415 -- as in `_opened`

        try:
            # A kubelet's server answers 406 where a client accepts one type alone: it names none for what it upgrades.
            said = await self._said({"Accept": "*/*"})
            async with self._opened().websocket(_target(path, query), said, protocol) as found:
                yield found
        except RefusedUpgrade as error:
            self._is_unauthorized = error.status == HTTPStatus.UNAUTHORIZED
            raise self._with_doubt(error_from_status(error.status, b"")) from error
        except OSError as error:
            raise self._lost(error) from error

    def _opened(self) -> "HttpSession":
        from closeknit.kube.http.http_session import HttpSession  # noqa: PLC0415 -- who never needs it is spared its memory

        if self._session is None:
            login = self._login
            self._session = HttpSession(
                login.host, login.tls, login.server_name, self._proxy, connect_timeout_s=CONNECT_TIMEOUT_S
            )
        return self._session

    async def _said(self, headers: Mapping[str, str]) -> dict[str, str]:
        """All headers of a request. Raises Unavailable without a login."""
        try:
            if self._is_unauthorized:
                self._is_unauthorized = False
                await self._login.renew()
            authorization = await self._login.authorization()
        except (OSError, LoginError) as error:
            raise Unavailable(f"no request is sent: {error}") from error
        said = {**self._headers, **headers}
        if authorization is not None:
            said["Authorization"] = authorization
        if any(not value.isprintable() for value in said.values()):
            raise Unavailable("no request is sent: what says who asks is more than one line")
        return said

    async def _said_anew(self, refused: Mapping[str, str]) -> dict[str, str] | None:
        """All headers of a request that was refused, with the token that a program or a file has renewed meanwhile.
        None where there is no other token."""
        async with self._renewing:  # of many requests that are refused at once the first one renews it
            try:
                authorization = await self._login.authorization()
                if authorization == refused.get("Authorization"):
                    await self._login.renew()
            except (OSError, LoginError):
                return None
        try:
            said = await self._said(refused)
        except Unavailable:
            return None
        return said if said.get("Authorization") != refused.get("Authorization") else None

    def _refusal(self, answer: HttpResponse) -> ApiError:
        wait = answer.retry_after
        return self._with_doubt(error_from_status(answer.status, answer.body, float(wait) if wait.isdigit() else None))

    def _with_doubt(self, refused: ApiError) -> ApiError:
        """The same, with what the login tells of itself. A server says no more than Unauthorized."""
        if isinstance(refused, Unauthorized) and (doubt := self._login.doubt()) is not None:
            return Unauthorized(f"{refused.message}: {doubt}", code=refused.code, reason=refused.reason)
        return refused

    def _lost(self, error: OSError) -> Unavailable:
        """No answer. A server that checks certificates before all else breaks the connection off."""
        told = str(error) or ("none came in time" if isinstance(error, TimeoutError) else type(error).__name__)
        doubt = self._login.doubt()
        return Unavailable(f"no answer from the API server: {told}{f'; {doubt}' if doubt else ''}")


def _target(path: str, query: Query) -> str:
    parameters = urlencode({name: value for name, value in query.items() if value is not None}) if query else ""
    return f"{path}?{parameters}" if parameters else path


def _proxy_of_environment(host: str) -> str | None:
    """The proxy that the usual variables name for this URL (HTTPS_PROXY, NO_PROXY), read once."""
    address = urlsplit(host)
    if proxy_bypass(address.hostname or ""):
        return None
    return getproxies().get(address.scheme)
