"""How the operator's process is put together from its options."""

import asyncio
from typing import Any

import pytest

from closeknit.controller import main, shell
from closeknit.kube.http.http_api import HttpApi


class Client:
    """Connections to an API server that nobody uses."""

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(("address", "is_asked"), [("127.0.0.1:0", False), (":0", True)])
def test_who_may_read_the_metrics_is_asked_over_connections_of_its_own(
    address: str, is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crowd at the metrics' port waits for reviews, and the operator's writes do not wait behind it."""
    runs: list[tuple[Any, Any]] = []

    async def connect(**_: Any) -> Client:
        return Client()

    async def run(process: tuple[Any, Any]) -> None:
        runs.append(process)

    monkeypatch.setattr(HttpApi, "connect", connect)
    monkeypatch.setattr(main, "Access", lambda reviews: reviews)
    monkeypatch.setattr(main, "Process", lambda api, _address, access, **_: (api, access))
    monkeypatch.setattr(shell, "run", run)
    asyncio.run(main._run(main._address(address)))
    ((api, access),) = runs
    assert (access is not None) is is_asked
    assert access is not api
