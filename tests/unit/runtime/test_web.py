"""What the web server answers: over a real socket of this machine."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import pytest
from aiohttp import ClientSession
from prometheus_client import CollectorRegistry, Gauge

from closeknit.kube.api import JsonObject
from closeknit.runtime import exchange, turnstile
from closeknit.runtime.access import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, Access
from closeknit.runtime.address import Address
from closeknit.runtime.exchange import HttpRequest, Reply, StreamedReply
from closeknit.runtime.web import WebServer
from faults.kinds import Kind
from faults.memory_api import MemoryApi
from faults.store import Store


@dataclass
class Process:
    """A process that says what it is told to."""

    complaints: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def faults(self) -> list[str]:
        return self.complaints

    def gaps(self) -> list[str]:
        return self.missing


def known(_: JsonObject) -> JsonObject:
    return {"authenticated": True, "user": {"username": "alice"}}


def allowed(_: JsonObject) -> JsonObject:
    return {"allowed": True}


async def answer(process: Process, path: str, access: Access | None = None, token: str = "") -> tuple[int, str]:
    registry = CollectorRegistry()
    Gauge("cats", "Cats.", registry=registry).set(9)
    server = WebServer(Address("127.0.0.1", 0), process, registry, access)
    await server.start()
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            ClientSession() as client,
            client.get(f"http://127.0.0.1:{server.port}{path}", headers=headers) as reply,
        ):
            return reply.status, await reply.text()
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("process", "path", "expected"),
    [
        pytest.param(Process(), "/healthz", (200, "ok"), id="well"),
        pytest.param(Process(complaints=["deaf", "mute"]), "/healthz", (500, "deaf\nmute"), id="ill"),
        pytest.param(Process(complaints=["deaf"]), "/readyz", (200, "ok"), id="ill, and ready all the same"),
        pytest.param(Process(missing=["nothing read yet"]), "/readyz", (503, "nothing read yet"), id="not ready"),
        pytest.param(Process(missing=["nothing read yet"]), "/healthz", (200, "ok"), id="not ready, and well"),
    ],
)
def test_health_and_readiness(process: Process, path: str, expected: tuple[int, str]) -> None:
    assert asyncio.run(answer(process, path)) == expected


def test_metrics_are_those_of_the_registry() -> None:
    status, text = asyncio.run(answer(Process(), "/metrics"))
    assert (status, "cats 9.0" in text) == (200, True)


@pytest.mark.parametrize(("token", "status"), [("", 401), ("alice", 200)])
def test_metrics_are_for_whom_the_api_server_knows(token: str, status: int) -> None:
    store = Store(
        [
            Kind(TOKEN_REVIEWS, "TokenReview", answer=known),
            Kind(SUBJECT_ACCESS_REVIEWS, "SubjectAccessReview", answer=allowed),
        ]
    )
    reply, text = asyncio.run(answer(Process(), "/metrics", Access(MemoryApi(store)), token))
    assert (reply, "cats" in text) == (status, status == 200)


async def raw(port: int, sent: bytes, *, wait_for_s: float = 5.0) -> bytes:
    """Whatever comes back before the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    try:
        async with asyncio.timeout(wait_for_s):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param(
            b"GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer \xff\xfe\r\n\r\n", b"401", id="no UTF-8"
        ),
        pytest.param(b"GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: \xff\r\n\r\n", b"401", id="no scheme"),
        pytest.param(b"GET /metrics\xff HTTP/1.1\r\nHost: a\r\n\r\n", b"40", id="a path that is no UTF-8"),
        pytest.param(b"GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n", b"404", id="a path that is not there"),
        pytest.param(b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n", b"405", id="another verb"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400", id="TLS"),
        pytest.param(b"nonsense\r\n\r\n", b"400", id="no HTTP"),
        pytest.param(b"GET / HTTP/1.1\r\nbad header\r\n\r\n", b"400", id="a header without a colon"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\nA: " + b"a" * 10_000 + b"\r\n\r\n", b"400", id="a long header"),
        pytest.param(b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", b"400", id="a long path"),
    ],
)
def test_bytes_of_any_kind_are_answered_and_leave_no_traceback(
    sent: bytes, status: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> bytes:
        access = Access(MemoryApi(Store([])))
        server = WebServer(Address("127.0.0.1", 0), Process(), CollectorRegistry(), access)
        await server.start()
        try:
            return await raw(server.port, sent)
        finally:
            await server.stop()

    assert asyncio.run(main()).partition(b" ")[2].startswith(status)
    assert not [record for record in caplog.records if record.exc_info and record.levelno > logging.DEBUG]


def test_a_mistake_of_ours_leaves_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Process):
        def faults(self) -> list[str]:
            raise ZeroDivisionError

    assert asyncio.run(answer(Broken(), "/healthz"))[0] == 500
    assert [record.exc_info and record.exc_info[0] for record in caplog.records] == [ZeroDivisionError]


def test_a_connection_is_for_one_request() -> None:
    async def main() -> bytes:
        server = WebServer(Address("127.0.0.1", 0), Process(), CollectorRegistry(), None)
        await server.start()
        try:
            return await raw(server.port, b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n" * 2)
        finally:
            await server.stop()

    said = asyncio.run(main())
    assert said.count(b"HTTP/1.1 200") == 1
    assert b"Connection: close" in said


def test_who_sends_no_request_is_shown_the_turnstile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turnstile, "CONNECTION_S", 0.2)

    async def main() -> list[bytes]:
        server = WebServer(Address("127.0.0.1", 0), Process(), CollectorRegistry(), None)
        await server.start()
        try:
            begun = (b"", b"GET /healthz HTTP/1.1\r\nHost: a\r\n", b"GET /healthz HTTP/1.1\r\nContent-Length: 9\r\n")
            return list(await asyncio.gather(*(raw(server.port, sent) for sent in begun)))
        finally:
            await server.stop()

    assert asyncio.run(main()) == [b"", b"", b""]


def test_no_crowd_keeps_anybody_out() -> None:
    """Three times as many connections as there are places, held by one address, and a request from another."""

    async def main() -> tuple[tuple[int, str], int]:
        process = Process()
        server = WebServer(Address("127.0.0.1", 0), process, CollectorRegistry(), None)
        await server.start()
        crowd: list[asyncio.StreamWriter] = []
        try:
            held = [
                await asyncio.open_connection("127.0.0.1", server.port, local_addr=("127.0.0.2", 0))
                for _ in range(3 * turnstile.CONNECTIONS)
            ]
            crowd = [writer for _, writer in held]
            async with (
                ClientSession() as client,
                client.get(f"http://127.0.0.1:{server.port}/healthz") as reply,
            ):
                said = reply.status, await reply.text()
            await asyncio.sleep(0.1)
            return said, sum(not reader.at_eof() and reader.exception() is None for reader, _ in held)
        finally:
            for writer in crowd:
                writer.close()
            await server.stop()

    said, left = asyncio.run(main())
    assert said == (200, "ok")
    assert left <= turnstile.CONNECTIONS


def test_a_single_connection_is_not_the_one_that_makes_room() -> None:
    class Held(asyncio.Protocol):
        pass

    class Transport(asyncio.Transport):
        is_cut = False

        def __init__(self, address: str) -> None:
            super().__init__({"peername": (address, 1)})

        def abort(self) -> None:
            self.is_cut = True

    async def main() -> tuple[bool, list[bool]]:
        the_turnstile = turnstile.Turnstile(lambda _: Held())
        single = Transport("10.0.0.1")
        the_turnstile().connection_made(single)
        crowd = [Transport("10.0.0.2") for _ in range(turnstile.CONNECTIONS + 9)]
        for each in crowd:
            the_turnstile().connection_made(each)
        return single.is_cut, [each.is_cut for each in crowd]

    single, crowd = asyncio.run(main())
    assert not single
    assert crowd == [True] * 10 + [False] * (turnstile.CONNECTIONS - 1)


@pytest.mark.parametrize(
    ("host", "access", "status"),
    [
        ("localhost:8080", None, 200),
        ("[::1]:8080", None, 200),
        ("10.1.2.3", None, 200),
        ("evil.example:8080", None, 403),
        ("localhost.evil.example", None, 403),
        ("", None, 403),
        ("metrics.example", Access(MemoryApi(Store([]))), 401),
    ],
)
def test_without_a_token_nothing_is_given_to_a_page_whose_name_leads_here(
    host: str, access: Access | None, status: int
) -> None:
    """DNS rebinding; where a token is needed the name does not matter."""

    async def main() -> bytes:
        server = WebServer(Address("127.0.0.1", 0), Process(), CollectorRegistry(), access)
        await server.start()
        try:
            return await raw(server.port, f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        finally:
            await server.stop()

    assert int(asyncio.run(main()).split()[1]) == status


@pytest.mark.parametrize(
    "second",
    [
        b"GET /b HTTP/1.1\r\nAuthorization: Bearer of-another\r\nA: b\r\n\r\n",
        b"GET /b HTTP/1.1\r\n" + b"".join(b"h%d: %s\r\n" % (n, b"y" * 8000) for n in range(2)),
    ],
)
def test_what_comes_behind_a_request_counts_for_nothing(second: bytes) -> None:
    seen: dict[str, str] = {}

    async def handler(request: HttpRequest) -> Reply:
        await asyncio.sleep(0)
        seen.update(request.headers)
        return Reply(200, request.path.encode())

    async def main() -> bytes:
        pages = {"/a": handler}
        server = WebServer(Address("127.0.0.1", 0), Process(), CollectorRegistry(), None, pages=pages)
        await server.start()
        try:
            return await raw(server.port, b"GET /a HTTP/1.1\r\nHost: one\r\n\r\n" + second)
        finally:
            await server.stop()

    assert asyncio.run(main()).endswith(b"/a")
    assert seen == {"host": "one"}


def test_trailers_of_a_body_are_no_headers() -> None:
    seen: dict[str, str] = {}

    async def handler(request: HttpRequest) -> Reply:
        await asyncio.sleep(0.05)
        seen.update(request.headers)
        return Reply(200)

    async def main() -> None:
        pages = {"/a": handler}
        server = WebServer(Address("127.0.0.1", 0), Process(), CollectorRegistry(), None, pages=pages)
        await server.start()
        chunked = (
            b"GET /a HTTP/1.1\r\nHost: one\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nAuthorization: Bearer t\r\n\r\n"
        )
        try:
            await raw(server.port, chunked)
        finally:
            await server.stop()

    asyncio.run(main())
    assert "authorization" not in seen


def test_a_reader_who_leaves_the_end_of_a_stream_untaken_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "FAREWELL_S", 0.1)
    open_: list[asyncio.Transport] = []

    async def pieces() -> AsyncGenerator[bytes, None]:
        yield b"x" * (8 << 20)

    async def handler(_: HttpRequest) -> StreamedReply:
        return StreamedReply(pieces(), "text/plain")

    async def main() -> bool:
        monkeypatch.setattr(exchange.Exchange, "pause_writing", lambda self: open_.append(self._transport))
        server = WebServer(Address("127.0.0.1", 0), Process(), CollectorRegistry(), None, pages={"/a": handler})
        await server.start()
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1)
        writer.write(b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for _ in range(100):
            await asyncio.sleep(0.01)
            if open_ and not open_[0].get_write_buffer_size() and open_[0].is_closing():
                break
        writer.close()
        await server.stop()
        return not open_[0].get_write_buffer_size()

    assert asyncio.run(main())
