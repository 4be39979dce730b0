"""Who may read /metrics beyond localhost: whoever the API server knows and allows, asked as little as possible."""

import asyncio

import pytest

from closeknit.kube.api import JsonObject
from closeknit.kube.errors import Unavailable
from closeknit.runtime.access import (
    BAD_S,
    FAMILIAR_S,
    GOOD_S,
    REMEMBERED,
    STRANGER_PAUSE_S,
    STRANGERS_WAITING,
    SUBJECT_ACCESS_REVIEWS,
    TOKEN_REVIEWS,
    Access,
)
from faults import virtual_time
from faults.fault import Delay, Fault, Refuse
from faults.kinds import Kind
from faults.memory_api import MemoryApi
from faults.store import Store

ALICE = "Bearer alice"


def known(review: JsonObject) -> JsonObject:
    """The API server knows alice, bob and everybody whose name begins with good."""
    token = review["spec"]["token"]
    user = {"username": token, "groups": ["team"], "uid": "1", "extra": {"a": ["b"]}}
    return {"authenticated": True, "user": user} if token.startswith(("alice", "bob", "good")) else {}


def allowed(review: JsonObject) -> JsonObject:
    """Bob may not read /metrics."""
    return {"allowed": review["spec"]["user"] != "bob"}


def reviewing(*faults: Fault) -> MemoryApi:
    reviews = Kind(TOKEN_REVIEWS, "TokenReview", answer=known)
    return MemoryApi(Store([reviews, Kind(SUBJECT_ACCESS_REVIEWS, "SubjectAccessReview", answer=allowed)]), faults)


@pytest.mark.parametrize(
    ("header", "status"),
    [
        pytest.param(ALICE, 200, id="one who may"),
        pytest.param("bearer  alice ", 200, id="the scheme in any case, and spaces"),
        pytest.param("Bearer bob", 403, id="one who may not"),
        pytest.param("Bearer mallory", 401, id="a token that nobody knows"),
        pytest.param("Basic alice", 401, id="another scheme"),
        pytest.param("Bearer ", 401, id="no token"),
        pytest.param("Bearer \udcff", 401, id="bytes that are no UTF-8"),
        pytest.param("Bearer \u00e4", 401, id="no ASCII"),
        pytest.param(None, 401, id="no header"),
    ],
)
def test_who_may(header: str | None, status: int) -> None:
    async def asked() -> int:
        return await Access(reviewing()).status(header, "/metrics", "a")

    assert virtual_time.run(asked()) == status


def test_the_whole_user_is_asked_about() -> None:
    api = reviewing()

    async def asked() -> None:
        await Access(api).status(ALICE, "/metrics", "a")

    virtual_time.run(asked())
    assert api.calls[1].body["spec"] == {
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        "user": "alice",
        "uid": "1",
        "groups": ["team"],
        "extra": {"a": ["b"]},
    }


@pytest.mark.parametrize(
    ("header", "status", "lasts_s", "calls"),
    [
        pytest.param(ALICE, 200, GOOD_S, 2, id="a good one for a minute"),
        pytest.param("Bearer bob", 403, BAD_S, 2, id="one that may not for ten seconds"),
        pytest.param("Bearer mallory", 401, BAD_S, 1, id="a bad one for ten seconds"),
    ],
)
def test_an_answer_is_remembered_and_no_answer_is_not(header: str, status: int, lasts_s: float, calls: int) -> None:
    async def story() -> list[tuple[int, int]]:
        api = reviewing(Fault(Refuse(Unavailable("down")), nth=1))
        access = Access(api)
        seen = []
        for pause_s in (0.0, 1.0, lasts_s - 1, 2.0):
            await asyncio.sleep(pause_s)
            seen.append((await access.status(header, "/metrics", "a"), len(api.calls)))
        return seen

    assert virtual_time.run(story()) == [
        (503, 1),
        (status, 1 + calls),
        (status, 1 + calls),
        (status, 1 + 2 * calls),
    ]


def test_a_flood_is_asked_about_at_a_rate_one_at_a_time_and_one_of_each_address() -> None:
    seconds = 60

    async def story() -> tuple[list[int], int, int]:
        api = reviewing(Fault(Delay(0.05)))
        access = Access(api)

        async def stranger(number: int) -> int:
            await asyncio.sleep(number / 100)
            return await access.status(f"Bearer random-{number}", "/metrics", f"10.0.0.{number % 3}")

        most = 0

        async def watched() -> None:
            nonlocal most
            while True:
                most = max(most, len(access._waiting))
                await asyncio.sleep(0.01)

        watching = asyncio.create_task(watched())
        statuses = await asyncio.gather(*(stranger(number) for number in range(seconds * 100)))
        watching.cancel()
        return statuses, len(api.calls), most

    statuses, calls, most = virtual_time.run(story())
    assert set(statuses) == {401, 429}
    assert calls <= seconds / STRANGER_PAUSE_S + 5
    assert most == 3


def test_in_a_flood_a_known_scraper_is_served_at_once_and_a_new_one_from_elsewhere_within_its_patience() -> None:
    async def story() -> list[tuple[int, bool]]:
        access = Access(reviewing(Fault(Delay(0.05))))
        loop = asyncio.get_running_loop()
        assert await access.status(ALICE, "/metrics", "10.0.0.1") == 200

        async def flood(address: int) -> None:
            number = 0
            while True:
                number += 1
                await access.status(f"Bearer {address}-{number}", "/metrics", f"10.0.1.{address}")
                await asyncio.sleep(0.001)

        floods = [asyncio.create_task(flood(address)) for address in range(STRANGERS_WAITING - 1)]
        await asyncio.sleep(GOOD_S + 5)  # her answer is too old by now
        seen = []
        for header, address, patience_s in ((ALICE, "10.0.1.0", 0.2), ("Bearer good-2", "10.0.0.2", 10.0)):
            asked = loop.time()
            seen.append((await access.status(header, "/metrics", address), loop.time() - asked <= patience_s))
        for each in floods:
            each.cancel()
        return seen

    assert virtual_time.run(story()) == [(200, True), (200, True)]


def test_bad_tokens_drive_no_good_one_out_and_the_memory_is_bounded() -> None:
    async def story() -> tuple[int, int, int]:
        api = reviewing()
        access = Access(api)
        await access.status(ALICE, "/metrics", "a")
        for number in range(REMEMBERED + 50):
            await access.status(f"Bearer {number}", "/metrics", "a")
        calls = len(api.calls)
        key, (_, alice) = next(iter(access._good.items()))
        access._good[key] = asyncio.get_running_loop().time(), alice  # as if asked a moment ago
        await access.status(ALICE, "/metrics", "a")
        for number in range(REMEMBERED + 50):
            await access.status(f"Bearer good-{number}", "/metrics", "a")
        return len(api.calls) - calls, len(access._bad), len(access._good)

    calls, bad, good = virtual_time.run(story())
    assert calls == 2 * (REMEMBERED + 50), "alice was not asked about again"
    assert (bad, good) == (REMEMBERED, REMEMBERED)


def test_who_has_not_come_for_an_hour_is_a_stranger_again() -> None:
    async def story() -> int:
        access = Access(reviewing(Fault(Delay(1.0))))
        await access.status(ALICE, "/metrics", "a")
        await asyncio.sleep(FAMILIAR_S)
        stranger = asyncio.create_task(access.status("Bearer mallory", "/metrics", "b"))
        await asyncio.sleep(0.1)
        status = await access.status(ALICE, "/metrics", "b")
        await stranger
        return status

    assert virtual_time.run(story()) == 429
