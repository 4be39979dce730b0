"""How the operator's process is put together from its options."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from closeknit.controller import kopf_operator, main
from closeknit.kube.http.http_api import HttpApi


class Client:
    """Connections to an API server that nobody uses."""

    namespace = "of-the-login"

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(("address", "is_asked"), [("127.0.0.1:0", False), (":0", True)])
def test_who_may_read_the_metrics_is_asked_over_connections_of_its_own(
    address: str, is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crowd at the metrics' port waits for reviews, and the operator's writes do not wait behind it."""
    api, access, _ = process_of(monkeypatch, f"--metrics-address={address}")
    assert (access is not None) is is_asked
    assert access is not api


@pytest.mark.parametrize(
    ("options", "namespace"),
    [
        ([], None),
        (["--leader-elect"], "of-the-login"),
        (["--leader-elect", "--leader-elect-namespace=team"], "team"),
        (["--leader-elect-namespace=team"], None),
    ],
)
def test_replicas_meet_where_they_are_told_to_or_where_they_run(
    options: list[str], namespace: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    elections = [process_of(monkeypatch, *options)[2] for _ in range(2)]
    assert [None if each is None else each.namespace for each in elections] == [namespace] * 2
    if namespace is not None:
        assert elections[0].identity != elections[1].identity


def process_of(monkeypatch: pytest.MonkeyPatch, *options: str) -> tuple[Any, Any, Any]:
    """What the process is made of: its Api, who says who may read its metrics, and its election."""
    runs: list[tuple[Any, Any, Any]] = []

    async def connect(**_: Any) -> Client:
        return Client()

    async def run(process: tuple[Any, Any, Any]) -> None:
        runs.append(process)

    monkeypatch.setattr(HttpApi, "connect", connect)
    monkeypatch.setattr(main, "Access", lambda reviews: reviews)
    monkeypatch.setattr(main, "Process", lambda api, _address, access, election, **_: (api, access, election))
    monkeypatch.setattr(kopf_operator, "run", run)
    asyncio.run(main._run(main._parser().parse_args(options)))
    (made,) = runs
    return made


def test_a_start_imports_no_client_that_it_does_not_use() -> None:
    """kopf would import all of Kubernetes' own, by which a Pod does not log in."""
    look = "import closeknit.controller.main, sys; print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout
    assert {"kopf", "aiohttp"} <= {*said.split()}
    assert {"kubernetes", "requests", "urllib3", "oauthlib"}.isdisjoint(said.split())
