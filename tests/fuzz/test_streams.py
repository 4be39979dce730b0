"""Every stream, with odd objects in its lists and its watches: each costs itself, and decisions go on."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from closeknit.api.objects import TrainingJob
from closeknit.cluster.store.watched_kinds import BY_STREAM, KINDS, Stream
from closeknit.controller import watched_cluster as watched_cluster_module
from closeknit.controller.watched_cluster import WatchedCluster
from closeknit.kube.api import Key, ListPage, Resource, WatchEvent
from closeknit.kube.http.replies import events_of, page_of
from closeknit.kube.lease import LEASES
from closeknit.kube.object_identity import NoHead, head_of
from closeknit.kube.reflector import NAMELESS
from closeknit.launch.template import check_template
from closeknit.placement.gang.cache import Tables
from closeknit.scheduling.decision import decide
from closeknit.scheduling.memo.memory import Memory
from faults import virtual_time
from fuzz.good_objects import good_objects
from fuzz.hostile import Object, hostile

GOOD = good_objects()
NOW = datetime(2026, 11, 21, 12, 1, tzinfo=UTC)
PER_ROUND = 6  # odd objects: three in a list, three in the watch after it
# What no list or watch gives is left out: how long nodes are silent is our own word, from their Leases.
ROUNDS = 8  # 432 objects over nine streams
LONG_ROUNDS = 10_000 // (len(KINDS) * PER_ROUND) + 1


ODD_LEASES = (
    b'{"metadata": {"name": "gpu-1"}, "spec": {"renewTime": "2026-11-21T12:00:00.000000Z"}}',
    b'{"metadata": {"name": 5}, "spec": []}',
    b'{"metadata": {"name": ""}, "spec": {"renewTime": null}}',
    b"{}",
    b'{"spec": ' + b'{"a": ' * 5000 + b"1" + b"}" * 5000 + b"}",
)


class Here:
    """Works at once: the clock is virtual."""

    async def run(self, work: Callable[[], Any]) -> Any:
        return work()


class Server:
    """An API server's answers as bytes, read by the very functions that read a real one's."""

    def __init__(self, odd: Stream, listed: Sequence[bytes], watched: Sequence[bytes]) -> None:
        self._odd = odd
        self._listed = listed
        self._watched = watched

    async def list(self, resource: Resource, *, label_selector: str | None = None, **_: Any) -> ListPage:
        if resource == LEASES:
            return page_of(page(ODD_LEASES))
        stream = _stream(resource, label_selector)
        items = [json.dumps(each).encode() for each in GOOD[stream]]
        if stream is self._odd:
            items = [items[0], *self._listed, *items[1:]]
        return page_of(page(items))

    async def watch(
        self, resource: Resource, *, label_selector: str | None = None, **_: Any
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        yield ()
        if _stream(resource, label_selector) is self._odd:
            events, error = events_of([b'{"type": "MODIFIED", "object": ' + each + b"}" for each in self._watched])
            assert error is None
            yield events
        await asyncio.sleep(3600)


def _stream(resource: Resource, label_selector: str | None) -> Stream:
    what = (resource.group, resource.plural, label_selector)
    return next(kind.stream for kind in KINDS if (kind.group, kind.plural, kind.label_selector) == what)


def page(items: Sequence[bytes]) -> bytes:
    return b'{"metadata": {"resourceVersion": "9"}, "items": [' + b", ".join(items) + b"]}"


def odd_objects(stream: Stream, seed: int, where: str, *, is_whole: bool) -> dict[Key, bytes]:
    """Three of them, none in more than one line."""
    found: dict[Key, bytes] = {}
    for number in range(PER_ROUND // 2):
        good: Object = GOOD[stream][(seed + number) % len(GOOD[stream])]
        name = f"odd-{where}-{number}"
        metadata = {**good["metadata"], "name": name, "uid": f"uid-{name}", "resourceVersion": str(100 + number)}
        document = hostile({**good, "metadata": metadata}, seed * PER_ROUND + number, is_whole=is_whole)
        found[Key(metadata.get("namespace", ""), name)] = document.replace(b"\n", b" ")
    return found


def is_readable(stream: Stream, document: bytes) -> bool:
    """Whether the stream's own decoder takes the document as the door hands it on."""
    try:
        BY_STREAM[stream].decode(page_of(page([document])).items[0])
    except Exception:
        return False
    return True


def name_of(document: bytes) -> Key:
    """Under which name it is reported: what an API server sets itself may be odd, too."""
    try:
        head = head_of(page_of(page([document])).items[0])
    except NoHead:
        return NAMELESS
    return Key(head.namespace, head.name)


def is_booked_against_all_odds(job: TrainingJob) -> bool:
    """Whether it holds GPUs with a template that is refused before anything is booked: its mistake is its own."""
    return job.status.placement is not None and check_template(job) is not None


def check(stream: Stream, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = odd_objects(stream, seed, "listed", is_whole=True)
    watched = odd_objects(stream, seed, "watched", is_whole=False)
    reports: list[tuple[Stream, Key]] = []
    monkeypatch.setattr(watched_cluster_module, "_report", lambda source, key, _: reports.append((source, key)))

    async def main() -> WatchedCluster:
        server: Any = Server(stream, list(listed.values()), list(watched.values()))
        follower = WatchedCluster(server, lambda: None)
        here: Any = Here()
        running = asyncio.create_task(follower.run())
        await asyncio.sleep(1)
        assert not running.done(), running.exception()
        assert follower.is_synced, follower.reflectors[stream].last_error
        cluster = await follower.look(here, NOW)
        decision = decide(cluster, Tables(), Memory(), NOW)
        for plan in decision.plans:
            assert plan.error is None or is_booked_against_all_odds(cluster.jobs[plan.job]), plan.error
        running.cancel()
        return follower

    seen = virtual_time.run(main()).reflectors[stream]
    for each in GOOD[stream]:
        key = Key(each["metadata"].get("namespace", ""), each["metadata"]["name"])
        is_kept = BY_STREAM[stream].decode(json.dumps(each).encode()) is not None
        assert (key in seen.objects) is is_kept, key
    assert len(set(reports)) == len(reports), "named once"
    assert {key for _, key in reports} == set(seen.quarantined)
    assert {source for source, _ in reports} <= {stream}
    unreadable = {key: document for key, document in listed.items() if not is_readable(stream, document)}
    assert {name_of(document) for document in unreadable.values()} <= set(seen.quarantined)
    assert not (listed.keys() - unreadable.keys()) & set(seen.quarantined)


@pytest.mark.parametrize("stream", [each.stream for each in KINDS])
def test_odd_objects_cost_themselves(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(ROUNDS):
        check(stream, seed, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("stream", [each.stream for each in KINDS])
def test_ten_thousand_odd_objects_cost_themselves(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(ROUNDS, ROUNDS + LONG_ROUNDS):
        check(stream, seed, monkeypatch)
