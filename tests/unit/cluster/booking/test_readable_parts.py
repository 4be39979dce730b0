"""Whatever one member of a stored status is, the shares beside it are read."""

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from closeknit.cluster.booking.booking import decoded
from closeknit.cluster.booking.readable_parts import readable_parts
from closeknit.cluster.cluster import build
from closeknit.cluster.store.watched_kinds import from_document
from scenarios.manifests import booked, condition, training_job
from scenarios.story import plugin_node

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


def free(status: dict[str, Any]) -> list[int]:
    """GPUs that are free on two nodes of eight, which a job with this status holds."""
    job = training_job("train", spec={"gpus": 16})
    job["status"] = status
    manifests = [*(each for number in range(2) for each in plugin_node(f"gpu-{number}")), job]
    cluster = build([value for each in manifests if (value := from_document(each)) is not None])
    assert cluster.invalid_jobs
    return [len(cluster.nodes[f"gpu-{number}"].free) for number in range(2)]


WHOLE = booked(("gpu-0", range(8)), ("gpu-1", range(8)))
END = {"number": 1, "reason": "NodeLost", "charged": False, "ended": "2026-11-21T10:00:00Z"}


@pytest.mark.parametrize(
    "status",
    [
        {
            "attempt": 1,
            "placement": {
                "nodeCount": 2,
                "nodes": [],
                "packed": {
                    "names": ["gpu-:0,1"],
                    "kinds": [{"gpus": [*range(8)], "binding": "Partition"}],
                    "kind": "0*2",
                    "generation": "4*2",
                },
            },
        },
        {"attempt": "3x", "placement": WHOLE, "attempts": [END]},
        {"attempt": 1, "placement": WHOLE, "attempts": [{**END, "inPlace": "Partly"}]},
    ],
    ids=["a kind of a gang in columns", "which attempt it is", "whether it goes on in its Pods"],
)
def test_in_doubt_the_job_holds_its_gpus(status: dict[str, Any]) -> None:
    assert free(status) == [0, 0]
