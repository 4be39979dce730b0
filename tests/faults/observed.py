"""A reflector of Nodes over the in-memory API server, and what it told."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from closeknit.kube.api import JsonObject, Key
from closeknit.kube.errors import Unavailable
from closeknit.kube.reflector import Event, Reflector
from faults import virtual_time
from faults.fault import Fault, Refuse
from faults.kinds import NODES
from faults.memory_api import MemoryApi
from faults.store import Store

UNAVAILABLE = Refuse(Unavailable("down", code=503))


def node(name: str, **labels: str) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def label(store: Store, name: str, **labels: str) -> None:
    store.json_patch(NODES, Key("", name), [{"op": "add", "path": "/metadata/labels", "value": labels}])


def decode(document: bytes) -> Mapping[str, str] | None:
    """A Node's labels; None for those that say so, an error for those that are broken."""
    labels: Mapping[str, str] = msgspec.json.decode(document)["metadata"]["labels"]
    if "broken" in labels:
        raise ValueError(f"broken: {labels['broken']}")
    return None if "drop" in labels else labels


class Observed:
    """A reflector of Nodes, what it told, and a picture of the Nodes put together from that alone."""

    def __init__(self, api: MemoryApi, jitter: float = 1.0) -> None:
        self.api = api
        self.store = api.store
        self.batches: list[list[tuple[str, str]]] = []
        self.picture: dict[Key, Mapping[str, str] | None] = {}
        self.quarantined: list[tuple[str, str]] = []
        self.decoded: list[Mapping[str, str]] = []
        self.reflector = Reflector(
            api,
            NODES,
            self.decode,
            self.take,
            on_quarantine=lambda key, reason: self.quarantined.append((str(key), reason)),
            jitter=lambda: jitter,
        )

    def decode(self, document: bytes) -> Mapping[str, str] | None:
        labels = decode(document)
        self.decoded.append(labels or {})
        return labels

    def take(self, events: Sequence[Event[Mapping[str, str]]]) -> None:
        self.batches.append([(event.kind, str(event.key)) for event in events])
        for event in events:
            assert self.picture.get(event.key) == event.old
            assert (event.kind == "ADDED") == (event.old is None)
            assert (event.kind == "DELETED") == (event.new is None)
            if event.new is None:
                del self.picture[event.key]
            else:
                self.picture[event.key] = event.new
        assert self.picture == self.reflector.objects

    @property
    def told(self) -> list[tuple[str, str]]:
        return [event for batch in self.batches for event in batch]

    def asked(self, *verbs: str) -> list[str]:
        return [call.verb for call in self.api.calls if not verbs or call.verb in verbs]

    async def settle(self) -> None:
        """Lets everything happen that needs no time."""
        await asyncio.sleep(0.001)


def observe(
    story: Callable[[Observed], Awaitable[None]],
    *faults: Fault,
    nodes: Sequence[str] = ("a", "b"),
    history: int = 1000,
    jitter: float = 1.0,
) -> Observed:
    """Runs a story beside a reflector that starts when the story first waits."""

    async def main() -> Observed:
        store = Store(history=history)
        for name in nodes:
            store.create(NODES, node(name))
        observed = Observed(MemoryApi(store, faults), jitter)
        running = asyncio.create_task(observed.reflector.run())
        await story(observed)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        assert not store.listeners, "a stream was left open"
        return observed

    return virtual_time.run(main())
