"""Every request is counted once, by what was asked and how it ended."""

import asyncio
from collections import Counter
from contextlib import aclosing

import pytest

from closeknit.controller.gauges.metered_api import MeteredApi
from closeknit.controller.writes.resources import PODS
from closeknit.kube.api import Resource
from closeknit.kube.errors import Gone, NotFound
from faults.fault import Fault, Refuse
from faults.kinds import NODES
from faults.memory_api import MemoryApi
from faults.store import Store
from scenarios.manifests import node


class Ledger(Counter[tuple[str, str, str]]):
    """What was observed."""

    def note(self, verb: str, resource: Resource, code: str, seconds: float) -> None:
        assert seconds >= 0
        self[verb, str(resource), code] += 1


def test_requests_are_counted_by_how_they_ended() -> None:
    ledger = Ledger()
    api = MeteredApi(MemoryApi(Store()), ledger.note)

    async def story() -> None:
        await api.create(NODES, node("gpu-1"))
        await api.list(NODES, limit=5)
        with pytest.raises(NotFound):
            await api.get(PODS, "none", namespace="team-b")

    asyncio.run(story())
    assert ledger == {("create", "nodes", "ok"): 1, ("list", "nodes", "ok"): 1, ("get", "pods", "NotFound"): 1}


def test_a_watch_counts_once_however_much_it_brings() -> None:
    ledger, store = Ledger(), Store()
    api = MeteredApi(MemoryApi(store), ledger.note)

    async def story() -> None:
        version = (await api.list(NODES)).resource_version
        await api.create(NODES, node("gpu-1"))
        await api.create(NODES, node("gpu-2"))
        async with aclosing(api.watch(NODES, resource_version=version, timeout_s=60)) as stream:
            assert await anext(stream) == ()
            seen = 0
            while seen < 2:
                seen += len(await anext(stream))

    asyncio.run(story())
    assert ledger["watch", "nodes", "ok"] == 1


def test_a_refused_watch_is_counted_as_such_and_raised() -> None:
    ledger = Ledger()
    api = MeteredApi(
        MemoryApi(Store(), [Fault(Refuse(Gone("too old", code=410, reason="Expired")), "watch", NODES)]), ledger.note
    )

    async def story() -> None:
        async with aclosing(api.watch(NODES, resource_version="1", timeout_s=60)) as stream:
            await anext(stream)

    with pytest.raises(Gone):
        asyncio.run(story())
    assert ledger == {("watch", "nodes", "Gone"): 1}
