"""Whatever one member of a stored status is, the shares beside it are read."""

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from closeknit.cluster.booking.booking import decoded
from closeknit.cluster.booking.readable_parts import readable_parts
from scenarios.manifests import booked, condition

STATUS: dict[str, Any] = {
    "state": "Running",
    "attempt": 2,
    "epoch": 7,
    "conditions": [condition("Placed"), condition("Running")],
    "attempts": [{"number": 1, "reason": "NodeLost", "charged": False, "ended": "2026-11-21T10:00:00Z"}],
    "placement": {
        **booked(("gpu-1", [0, 1]), ("gpu-2", [2, 3]), ("gpu-3", [4, 5])),
        "succeeded": "0",
        "levels": {"rack": 1},
    },
}
HOSTILE: list[Any] = [None, 7, -1, "", "x" * 70_000, [], {}, [[[]]], {"a": {"b": []}}, True, 1e300]


def paths(found: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if at:
        yield at
    members = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for step, member in members:
        yield from paths(member, (*at, step))


@pytest.mark.parametrize("path", [*paths(STATUS)], ids=lambda path: ".".join(map(str, path)))
def test_what_stands_beside_an_odd_member_is_read(path: tuple[str | int, ...]) -> None:
    for odd in HOSTILE:
        status: Any = deepcopy(STATUS)
        holder = status
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = odd
        found = readable_parts(json.dumps(status).encode())
        assert found is not None
        if path in {("placement",), ("placement", "nodes")}:
            continue
        assert found.placement is not None, odd
        others = [
            share for at, share in enumerate(STATUS["placement"]["nodes"]) if path[:3] != ("placement", "nodes", at)
        ]
        nodes = {share.node: share for share in decoded(found.placement)}
        assert {share["name"] for share in others} <= nodes.keys(), odd
        assert all([*nodes[share["name"]].gpus] == share["gpus"] for share in others)
        is_whole_share = len(path) < 3 or path[:2] != ("placement", "nodes")
        has_odd_positions = path == ("placement", "succeeded")
        if is_whole_share and not has_odd_positions:
            assert [share.succeeded for share in nodes.values()] == [True, False, False], odd


@pytest.mark.parametrize("document", [b"null", b"[]", b"7", b'"x"', b"{", b'{"placement":' + b"[" * 5000])
def test_what_is_no_status_has_no_parts(document: bytes) -> None:
    assert readable_parts(document) is None
