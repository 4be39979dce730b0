"""Who may read /metrics beyond localhost: whoever the API server knows and allows, asked once a minute."""

import asyncio

import pytest

from closeknit.kube.api import JsonObject
from closeknit.kube.errors import Unavailable
from closeknit.runtime.access import REMEMBERED_S, SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, Access
from faults import virtual_time
from faults.fault import Fault, Refuse
from faults.kinds import Kind
from faults.memory_api import MemoryApi
from faults.store import Store


def known(review: JsonObject) -> JsonObject:
    """The API server knows alice and bob."""
    token = review["spec"]["token"]
    user = {"username": token, "groups": ["team"], "uid": "1", "extra": {"a": ["b"]}}
    return {"authenticated": True, "user": user} if token in {"alice", "bob"} else {}


def allowed(review: JsonObject) -> JsonObject:
    """Alice may read /metrics."""
    return {"allowed": review["spec"]["user"] == "alice"}


def reviewing(*faults: Fault) -> MemoryApi:
    reviews = Kind(TOKEN_REVIEWS, "TokenReview", answer=known)
    return MemoryApi(Store([reviews, Kind(SUBJECT_ACCESS_REVIEWS, "SubjectAccessReview", answer=allowed)]), faults)


@pytest.mark.parametrize(
    ("header", "status"),
    [
        pytest.param("Bearer alice", 200, id="one who may"),
        pytest.param("bearer  alice ", 200, id="the scheme in any case, and spaces"),
        pytest.param("Bearer bob", 403, id="one who may not"),
        pytest.param("Bearer mallory", 401, id="a token that nobody knows"),
        pytest.param("Basic alice", 401, id="another scheme"),
        pytest.param("Bearer ", 401, id="no token"),
        pytest.param(None, 401, id="no header"),
    ],
)
def test_who_may(header: str | None, status: int) -> None:
    assert virtual_time.run(Access(reviewing()).status(header, "/metrics")) == status


def test_the_whole_user_is_asked_about() -> None:
    api = reviewing()
    virtual_time.run(Access(api).status("Bearer alice", "/metrics"))
    assert api.calls[1].body["spec"] == {
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        "user": "alice",
        "uid": "1",
        "groups": ["team"],
        "extra": {"a": ["b"]},
    }


def test_an_answer_is_remembered_for_a_minute_and_no_answer_is_not() -> None:
    async def story() -> list[tuple[int, int]]:
        api = reviewing(Fault(Refuse(Unavailable("down")), nth=1))
        access = Access(api)
        seen = []
        for pause_s in (0.0, 0.0, REMEMBERED_S - 1, 2.0):
            await asyncio.sleep(pause_s)
            seen.append((await access.status("Bearer alice", "/metrics"), len(api.calls)))
        return seen

    assert virtual_time.run(story()) == [(503, 1), (200, 3), (200, 3), (200, 5)]
