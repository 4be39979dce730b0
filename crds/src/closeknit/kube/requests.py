"""Requests to the API server of a login: who asks, over which connections, and what it means that there is no answer.

Watches, and all that goes through a proxy, are aiohttp's; everything else goes over `Connections`.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from closeknit.kube.connections import Answer, Connections
from closeknit.kube.errors import ApiError, Unavailable, error_from_status
from closeknit.kube.login import Login, LoginError

CONNECT_TIMEOUT_S = 10.0
READ_BUFFER_BYTES = 2**21  # one object of a watch may have 1.5 MiB

Query = Mapping[str, str | int | None]
"""Parameters of a request; those that are None are left out."""


class Requests:
    """Asks one API server, in the name of its login; closed by `close`."""

    def __init__(self, login: Login, headers: Mapping[str, str], *, timeout_s: float) -> None:
        """`headers` are those of every request; `timeout_s` is how long an answer may take. Raises LoginError."""
        try:
            self._connections = Connections(
                login.host, login.tls, login.server_name, connect_timeout_s=CONNECT_TIMEOUT_S
            )
        except ValueError as error:
            raise LoginError(str(error)) from error
        self._login = login
        self._headers = headers
        self._timeout_s = timeout_s
        self._proxy = login.proxy or _proxy_of_environment(login.host)
        # Not the library's own session: it looks into the environment and into ~/.netrc before every request, in two
        # turns of another thread, which costs as much as all the rest of a request; and a login for every host in there
        # would have it refuse ours.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=login.tls),
            cookie_jar=aiohttp.DummyCookieJar(),  # as client-go has it: an API server knows who asks by the login
            read_bufsize=READ_BUFFER_BYTES,
            trust_env=False,
        )
        self._is_unauthorized = False

    async def close(self) -> None:
        """Closes all connections and what reads from them."""
        self._login.close()
        self._connections.close()
        await self._session.close()

    async def answer(
        self, method: str, path: str, query: Query, body: bytes | None, headers: Mapping[str, str]
    ) -> bytes:
        """Body of a successful answer, with these headers besides. Raises ApiError."""
        said, target = await self._said(headers), _target(path, query)
        try:
            if self._proxy is None:
                lines = "".join([f"{name}: {value}\r\n" for name, value in said.items()])
                async with asyncio.timeout(self._timeout_s):
                    answer = await self._connections.ask(method, target, lines, body)
            else:
                timeout = aiohttp.ClientTimeout(total=self._timeout_s, sock_connect=CONNECT_TIMEOUT_S)
                answer = await _whole(await self._sent(method, target, body, said, timeout))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unavailable(error) from error
        self._is_unauthorized = answer.status == HTTPStatus.UNAUTHORIZED
        if not 200 <= answer.status <= 299:
            raise _error(answer)
        return answer.body

    @asynccontextmanager
    async def stream(self, path: str, query: Query) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        """The answer to a GET whose body never ends. What goes wrong while it is read is raised as Unavailable, too."""
        # No limit on reading here: how long silence may last is for the reader of the stream to say.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
        said = await self._said({})
        try:
            response = await self._sent("GET", _target(path, query), None, said, timeout)
            self._is_unauthorized = response.status == HTTPStatus.UNAUTHORIZED
            try:
                if response.status != HTTPStatus.OK:
                    raise _error(await _whole(response))
                yield response
            finally:
                _hang_up(response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unavailable(error) from error

    async def _said(self, headers: Mapping[str, str]) -> dict[str, str]:
        """All headers of a request. Raises Unavailable where nobody tells who asks."""
        try:
            if self._is_unauthorized:
                self._is_unauthorized = False
                await self._login.renew()
            authorization = await self._login.authorization()
        except (OSError, LoginError) as error:
            raise _unavailable(error) from error
        said = {**self._headers, **headers}
        if authorization is not None:
            said["Authorization"] = authorization
        if any(not value.isprintable() for value in said.values()):
            raise Unavailable("no request is sent: what says who asks is more than one line")
        return said

    async def _sent(
        self,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 -- aiohttp's own, it knows connecting from reading
    ) -> aiohttp.ClientResponse:
        """The answer's head, whatever its status; its body is still to be read. Raises what aiohttp raises."""
        return await self._session.request(
            method,
            f"{self._login.host}{target}",
            data=body,
            headers=headers,
            timeout=timeout,
            proxy=self._proxy,
            server_hostname=self._login.server_name,
        )


def _target(path: str, query: Query) -> str:
    parameters = urlencode({name: value for name, value in query.items() if value is not None}) if query else ""
    return f"{path}?{parameters}" if parameters else path


def _proxy_of_environment(host: str) -> str | None:
    """The proxy that the usual variables name for this URL (HTTPS_PROXY, NO_PROXY), read once."""
    address = urlsplit(host)
    if proxy_bypass(address.hostname or ""):
        return None
    return getproxies().get(address.scheme)


async def _whole(response: aiohttp.ClientResponse) -> Answer:
    try:
        return Answer(response.status, response.headers.get("Retry-After", ""), await response.read())
    except BaseException:
        response.close()
        raise


def _hang_up(response: aiohttp.ClientResponse) -> None:
    """Ends a stream at once: a farewell by TLS would have to be waited for, and nobody may be there."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


def _error(answer: Answer) -> ApiError:
    wait = answer.retry_after
    return error_from_status(answer.status, answer.body, float(wait) if wait.isdigit() else None)


def _unavailable(error: Exception) -> Unavailable:
    return Unavailable(f"no answer from the API server: {error or type(error).__name__}")
