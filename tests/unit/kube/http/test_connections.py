"""Connections that are kept, against a server that answers with the bytes that it is given."""

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from closeknit.kube.http import connections
from closeknit.kube.http.connections import MAX_HEAD_BYTES, Connections, HttpResponse

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Server:
    """Answers the requests of every connection with `answers`, one each in turn over all of them; then with silence."""

    answers: list[bytes]
    hangs_up: bool = False
    """Whether it closes after each answer."""
    requests: list[tuple[int, bytes]] = field(default_factory=list)
    """Number of the connection and what came over it."""
    connections: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        self.writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests.append((number, head))
                if not self.answers:
                    continue
                writer.write(self.answers.pop(0))
                await writer.drain()
                if self.hangs_up:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()


@asynccontextmanager
async def serving(server: Server) -> AsyncGenerator[Connections, None]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    asking = Connections(f"http://127.0.0.1:{port}/k8s", ssl.create_default_context(), None, connect_timeout_s=5)
    try:
        yield asking
    finally:
        asking.close()
        listening.close()
        for writer in server.writers:
            writer.close()
        await asyncio.sleep(0)


def asked(server: Server, story: Callable[[Connections], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with serving(server) as asking:
            return await asyncio.wait_for(story(asking), 20)

    return asyncio.run(main())


async def until(is_so: Callable[[], bool]) -> None:
    for _ in range(20_000):  # 20 s and more
        if is_so():
            return
        await asyncio.sleep(0.001)
    raise TimeoutError


def has_none(asking: Connections) -> bool:
    return not any(connection.is_usable for connection in asking._free)


async def get(asking: Connections) -> HttpResponse:
    return await asking.ask("GET", "/api", "", None)


async def twice(asking: Connections) -> list[HttpResponse]:
    return [await get(asking), await get(asking)]


def test_one_connection_serves_one_request_after_the_other() -> None:
    server = Server([OK, OK])
    first, second = asked(server, twice)
    assert first == second == HttpResponse(200, "", b"ok")
    assert [number for number, _ in server.requests] == [1, 1]
    head = server.requests[0][1]
    assert head.startswith(b"GET /k8s/api HTTP/1.1\r\nHost: 127.0.0.1:") and b"Content-Length" not in head


def test_two_requests_at_a_time_have_a_connection_each() -> None:
    server = Server([OK, OK])
    asked(server, lambda asking: asyncio.gather(get(asking), get(asking)))
    assert server.connections == 2


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n1\r\n!\r\n0\r\n\r\n",
            HttpResponse(200, "", b"ok!"),
            id="in chunks",
        ),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", HttpResponse(204, "", b""), id="without a body"),
        pytest.param(
            b"HTTP/1.1 100 Continue\r\n\r\n" + OK, HttpResponse(200, "", b"ok"), id="after one that says go on"
        ),
        pytest.param(
            b"HTTP/1.1 429 Slow\r\nretry-after: 3\r\nContent-Length: 0\r\n\r\n",
            HttpResponse(429, "3", b""),
            id="a refusal",
        ),
    ],
)
def test_an_answer_is_read_to_its_end(answer: bytes, expected: HttpResponse) -> None:
    server = Server([answer, OK])
    assert asked(server, twice) == [expected, HttpResponse(200, "", b"ok")]
    assert server.connections == 1


def test_an_answer_of_no_told_length_ends_with_its_connection() -> None:
    server = Server([b"HTTP/1.1 200 OK\r\n\r\nok"], hangs_up=True)
    assert asked(server, get) == HttpResponse(200, "", b"ok")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", id="the server says so"),
        pytest.param(OK + OK, id="more has come than was asked for"),
    ],
)
def test_a_connection_that_cannot_be_used_again_is_not(answer: bytes) -> None:
    server = Server([answer, OK])
    assert asked(server, twice) == [HttpResponse(200, "", b"ok")] * 2
    assert [number for number, _ in server.requests] == [1, 2]


def test_a_connection_that_the_server_has_closed_is_not_used_again() -> None:
    server = Server([OK, OK], hangs_up=True)

    async def story(asking: Connections) -> None:
        await get(asking)
        await until(lambda: has_none(asking))
        await get(asking)

    asked(server, story)
    assert [number for number, _ in server.requests] == [1, 2]


def test_a_connection_that_was_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "KEPT_S", 0.0)
    server = Server([OK, OK])
    asked(server, twice)
    assert server.connections == 2


def test_what_comes_unasked_is_not_taken_for_an_answer() -> None:
    server = Server([OK, b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nour"])

    async def story(asking: Connections) -> HttpResponse:
        await get(asking)
        server.writers[0].write(OK)
        await until(lambda: has_none(asking))
        return await get(asking)

    assert asked(server, story).body == b"our"


def test_the_answer_to_a_request_that_was_given_up_is_not_taken_for_another() -> None:
    server = Server([])

    async def story(asking: Connections) -> HttpResponse:
        given_up = asyncio.create_task(get(asking))
        await until(lambda: bool(server.requests))
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        server.writers[0].write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nold")
        server.answers.append(OK)
        return await get(asking)

    assert asked(server, story).body == b"ok"
    assert [number for number, _ in server.requests] == [1, 2]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(b"SSH-2.0-server\r\n", "no HTTP", id="another protocol"),
        pytest.param(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "no HTTP", id="upgraded"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: " + b"x" * (2 * MAX_HEAD_BYTES), "does not end", id="an endless head"),
        pytest.param(b"", "was closed", id="closed"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", "was closed", id="cut off"),
    ],
)
def test_what_is_no_answer_is_an_error(answer: bytes, words: str) -> None:
    server = Server([answer], hangs_up=words == "was closed")
    with pytest.raises(OSError, match=words):
        asked(server, get)


def test_whoever_waits_is_told_when_all_is_closed() -> None:
    server = Server([])

    async def story(asking: Connections) -> None:
        waiting = asyncio.create_task(get(asking))
        await until(lambda: bool(server.requests))
        asking.close()
        with pytest.raises(OSError, match="was closed"):
            await waiting

    asked(server, story)


@pytest.mark.parametrize("url", ["127.0.0.1:6443", "ftp://host", "https://"])
def test_a_url_that_names_no_server_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="names no HTTP server"):
        Connections(url, ssl.create_default_context(), None, connect_timeout_s=1)


def test_what_a_stopped_process_was_about_to_send_over_a_new_connection_is_not_sent() -> None:
    """It wakes when what allowed the request is over. The connection is good, and the next request uses it."""

    class Stopped(Connections):
        async def _connected(self) -> Any:
            connection = await super()._connected()
            time.sleep(0.3)  # noqa: ASYNC251 - nothing runs meanwhile
            return connection

    async def main() -> None:
        server = Server([OK])
        async with serving(server) as asking:
            host, tls = f"http://127.0.0.1:{asking._port}", ssl.create_default_context()
            stopped = Stopped(host, tls, None, connect_timeout_s=5, sent_within_s=0.1)
            with pytest.raises(TimeoutError, match="was not sent"):
                await stopped.ask("POST", "/first", "", b"")
            assert (await stopped.ask("POST", "/second", "", b"")).body == b"ok"
            stopped.close()
        assert [request.split()[1] for _, request in server.requests] == [b"/second"]
        assert server.connections == 1

    asyncio.run(main())
