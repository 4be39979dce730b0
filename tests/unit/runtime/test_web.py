"""What the web server answers: over a real socket of this machine."""

import asyncio
from dataclasses import dataclass, field

import pytest
from aiohttp import ClientSession
from prometheus_client import CollectorRegistry, Gauge

from closeknit.kube.api import JsonObject
from closeknit.runtime.access import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, Access
from closeknit.runtime.address import Address
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
