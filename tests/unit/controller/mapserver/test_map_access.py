"""Who gets the map's stream, and for how long. The five faults that KueueViz has had are tests with its name."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from closeknit.controller.mapserver import pages as served
from closeknit.controller.mapserver.feed import MapFeed
from closeknit.controller.mapserver.pages import MapPages
from closeknit.controller.mapserver.viewers import MOST_NAMESPACES, REVIEWS_OF_ONE, REVIEWS_OF_USER, Viewers
from closeknit.kube.api import JsonObject
from closeknit.kube.errors import Unavailable
from closeknit.runtime import exchange, turnstile
from closeknit.runtime.access import GOOD_S, SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, Access
from closeknit.runtime.exchange import HttpRequest, Reply, StreamedReply
from closeknit.webmap.scene import EMPTY_SCENE, scene
from faults import virtual_time
from faults.fault import Fault, Refuse
from faults.kinds import Kind
from faults.memory_api import MemoryApi
from faults.store import Store
from harness.map_stage import Stage, eight
from scenarios.manifests import booked, training_job
from scenarios.story import NOW, Story, dra_node

EVERYTHING = "all"  # whoever shows this token may list every job
HOST = {"host": "localhost:8080", "closeknit-map": "1"}
STORY = Story(
    *dra_node("gpu-1"),
    training_job("one", namespace="team-a", spec={"gpus": 4}, placement=booked(("gpu-1", range(4)), binding="DRA")),
    training_job("two", namespace="team-b", spec={"gpus": 4}, placement=booked(("gpu-1", range(4, 8)), binding="DRA")),
)


class World:
    """An API server that knows everybody but who is revoked; `all` may list all jobs, `team-a` those of team-a."""

    def __init__(self, *faults: Fault) -> None:
        self.revoked: set[str] = set()
        self.known: Callable[[str], JsonObject] = lambda token: {"username": token}
        reviews = Kind(TOKEN_REVIEWS, "TokenReview", answer=self._known)
        rights = Kind(SUBJECT_ACCESS_REVIEWS, "SubjectAccessReview", answer=self._may)
        self.api = MemoryApi(Store([reviews, rights]), faults)
        self.cluster = STORY.cluster.at(NOW)
        self.feed = MapFeed(lambda: self.cluster, lambda: None, self._work, lambda: NOW, "0.1")
        self.feed.scene = scene(self.cluster, None, NOW, "0.1", EMPTY_SCENE)
        self.pages = MapPages(self.feed, Viewers(Access(self.api), lambda: ["team-a", "team-b"])).handlers()

    async def _work(self, draw: Callable[[], Any]) -> Any:
        return draw()

    def _known(self, review: JsonObject) -> JsonObject:
        token = review["spec"]["token"]
        return {} if token in self.revoked else {"authenticated": True, "user": self.known(token)}

    def _may(self, review: JsonObject) -> JsonObject:
        spec = review["spec"]
        if "nonResourceAttributes" in spec:
            return {"allowed": spec["user"] != "stranger" and spec["nonResourceAttributes"]["path"] == "/map/stream"}
        attributes = spec["resourceAttributes"]
        asked = (attributes["group"], attributes["resource"], attributes["verb"])
        assert asked == ("closeknit.dev", "trainingjobs", "list")
        return {"allowed": spec["user"] in {"all", attributes["namespace"]}}

    async def ask(self, token: str = EVERYTHING, /, **headers: str) -> Reply | StreamedReply:
        more = {name.replace("_", "-"): each for name, each in headers.items()}
        told = {**HOST, "authorization": f"Bearer {token}", **more}
        return await self.pages["/map/stream"](HttpRequest("/map/stream", told, "127.0.0.1"))


async def first(answer: Reply | StreamedReply) -> dict[str, Any]:
    """The first message of a stream, which goes on."""
    assert isinstance(answer, StreamedReply)
    async for piece in answer.pieces:
        if piece.startswith(b"data: "):
            message: dict[str, Any] = json.loads(piece[6:])
            return message
    raise AssertionError("it has ended")


def run(story: Callable[[], Awaitable[Any]]) -> Any:
    return virtual_time.run(story())  # type: ignore[arg-type]


FOREIGN = [
    pytest.param({"origin": "https://evil.example"}, id="a page of another site"),
    pytest.param({"origin": "null"}, id="a page without an origin"),
    pytest.param({"origin": "http://localhost:9999"}, id="another port"),
    pytest.param({"sec_fetch_site": "cross-site"}, id="what a browser says"),
    pytest.param({"sec_fetch_site": "same-site"}, id="a neighbour"),
    pytest.param({"host": "evil.example:8080"}, id="a name that leads here by DNS"),
    pytest.param({"host": "localhost.evil.example"}, id="a name that begins like ours"),
    pytest.param({"host": ""}, id="no name"),
]


@pytest.mark.parametrize("headers", FOREIGN)
def test_kueueviz_a_stream_is_not_used_by_another_site(headers: dict[str, str]) -> None:
    async def story() -> tuple[int, int]:
        world = World()
        answer = await world.ask("all", **headers)
        assert isinstance(answer, Reply)
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
        return answer.status, len(world.api.calls)

    assert run(story) == (403, 0)


def test_kueueviz_a_stream_needs_a_header_that_no_other_site_can_send() -> None:
    async def story() -> int:
        answer = await World().pages["/map/stream"](HttpRequest("/map/stream", {"host": "localhost"}, "a"))
        assert isinstance(answer, Reply)
        return answer.status

    assert run(story) == 403


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1:1", "[::1]:8080", "a.b.svc:8080", "10.1.2.3"])
def test_names_that_are_ours(host: str) -> None:
    async def story() -> bool:
        return isinstance(await World().ask("all", host=host, origin=f"https://{host}"), StreamedReply)

    assert run(story)


@pytest.mark.parametrize(("token", "status"), [("", 401), ("stranger", 403)])
def test_a_token_is_needed_that_may_get_the_stream(token: str, status: int) -> None:
    async def story() -> tuple[int, bytes]:
        answer = await World().ask(token)
        assert isinstance(answer, Reply)
        return answer.status, answer.text

    got, words = run(story)
    assert got == status
    assert (b"kubectl create token" if status == 401 else b"closeknit-map-viewer") in words


def test_kueueviz_a_stream_ends_when_its_token_is_revoked() -> None:
    async def story() -> tuple[bytes, float]:
        world = World()
        answer = await world.ask()
        await first(answer)
        assert isinstance(answer, StreamedReply)
        answer = await world.ask()
        assert isinstance(answer, StreamedReply)
        began = asyncio.get_running_loop().time()
        world.revoked.add("all")
        last = b""
        async for piece in answer.pieces:
            last = piece
        return last, asyncio.get_running_loop().time() - began

    last, seconds = run(story)
    assert last == b'event: end\ndata: {"status":401}\n\n'
    assert seconds <= GOOD_S + 2 * served.REVIEW_S


def test_without_an_answer_of_the_api_server_a_stream_ends_too_but_not_at_once() -> None:
    async def story() -> tuple[bytes, float]:
        is_down: list[bool] = []
        world = World(Fault(Refuse(Unavailable("down")), when=lambda _: bool(is_down)))
        answer = await world.ask()
        is_down.append(True)
        assert isinstance(answer, StreamedReply)
        last = b""
        async for piece in answer.pieces:
            last = piece
        return last, asyncio.get_running_loop().time()

    last, seconds = run(story)
    assert last == b'event: end\ndata: {"status":503}\n\n'
    assert served.UNKNOWN_S <= seconds <= 2 * served.UNKNOWN_S + GOOD_S


def test_kueueviz_many_streams_of_one_token_ask_no_more_than_one() -> None:
    async def story() -> list[int]:
        world = World()
        calls = []
        for _ in range(5):
            answer = await world.ask("team-a")
            assert isinstance(answer, StreamedReply)
            await first(answer)
            calls.append(len(world.api.calls))
        return calls

    # Who it is; the path; all namespaces; those two with jobs.
    assert run(story) == [5] * 5


def test_kueueviz_named_namespaces_are_bounded() -> None:
    async def story() -> tuple[int, int]:
        world = World()
        names = ",".join(f"ns-{number}" for number in range(500))
        await world.ask("team-a", closeknit_namespaces=names)
        named = len(world.api.calls)
        await world.ask("team-a", closeknit_namespaces="../../secrets,A B,%00," + "x" * 64)
        return named, len(world.api.calls) - named

    assert run(story) == (3 + MOST_NAMESPACES, 2)


def test_kueueviz_many_lists_of_namespaces_by_one_token_are_bounded_and_hold_up_nobody() -> None:
    async def story() -> tuple[int, set[int], int]:
        world = World()
        await world.ask("team-a")
        before, statuses = len(world.api.calls), set[int]()
        for number in range(60):
            names = ",".join(f"x{number}-{each}" for each in range(MOST_NAMESPACES))
            answer = await world.ask("team-a", closeknit_namespaces=names)
            statuses.add(answer.status if isinstance(answer, Reply) else 200)
        asked = len(world.api.calls) - before
        assert isinstance(await world.ask("team-b"), StreamedReply)
        await asyncio.sleep(GOOD_S)
        assert isinstance(await world.ask("team-a"), StreamedReply)
        return asked, statuses, len(world.api.calls)

    asked, statuses, _ = run(story)
    assert asked < REVIEWS_OF_ONE
    assert statuses == {200, 429}


def test_kueueviz_many_tokens_of_one_user_are_bounded_in_reviews_and_streams() -> None:
    """An account makes as many tokens as it likes."""

    async def story() -> tuple[int, int, bool]:
        world, kept = World(), list[AsyncGenerator[bytes, None]]()
        world.known = lambda token: {"username": "alice"} if token.startswith("alice-") else {"username": token}
        for number in range(served.STREAMS):
            answer = await world.ask(f"alice-{number}")
            if isinstance(answer, StreamedReply):
                await anext(answer.pieces)
                kept.append(answer.pieces)
        reviews = sum(call.resource == SUBJECT_ACCESS_REVIEWS for call in world.api.calls)
        return len(kept), reviews, isinstance(await world.ask("bob"), StreamedReply)

    kept, reviews, others_may = run(story)
    assert kept == served.STREAMS_OF_USER < served.STREAMS
    assert reviews <= served.STREAMS + REVIEWS_OF_USER
    assert others_may


@pytest.mark.parametrize("takes_s", [0.1, 5.0, 14.9])
def test_a_slow_reader_keeps_no_stream_whose_token_is_revoked(takes_s: float) -> None:
    """Of a large cluster one moment is many frames, and he takes each as slowly as he may."""

    async def story() -> tuple[bytes, float]:
        world, clock = World(), asyncio.get_running_loop().time
        many = tuple(b'data: {"part":%d}\n\n' % number for number in range(4000))
        world.feed.frames = lambda seen, veil: many if seen is None else ()  # type: ignore[method-assign]  # noqa: ARG005 - as the real one's
        answer = await world.ask()
        assert isinstance(answer, StreamedReply)
        await anext(answer.pieces)
        world.revoked.add("all")
        began, last = clock(), b""
        async for piece in answer.pieces:
            last = piece
            if piece.startswith(b"data"):
                await asyncio.sleep(takes_s)  # as Exchange waits for him
        return last, clock() - began

    last, seconds = run(story)
    assert last == b'event: end\ndata: {"status":401}\n\n'
    assert seconds + exchange.FAREWELL_S <= 90


def test_who_comes_after_an_hour_without_watchers_sees_nothing_old() -> None:
    async def story() -> list[dict[str, Any]]:
        world = World()
        follows = asyncio.create_task(world.feed.run())
        told = []
        for _ in range(3):
            answer = await world.ask()
            told.append(await first(answer))
            assert isinstance(answer, StreamedReply)
            await answer.pieces.aclose()
            await asyncio.sleep(3600)
            world.cluster = Story(*dra_node("gpu-1")).cluster.at(NOW) if len(told) == 1 else world.cluster
        follows.cancel()
        return told

    now, later, again = run(story)
    assert sorted(now["jobs"]) == ["team-a/one", "team-b/two"]
    assert "jobs" not in later
    assert later["nodes"] == again["nodes"]


def test_kueueviz_strangers_are_asked_about_at_a_rate() -> None:
    async def story() -> int:
        world = World()
        world.revoked |= {f"bad-{number}" for number in range(500)}
        asked = [asyncio.create_task(world.ask(f"bad-{number}")) for number in range(500)]
        await asyncio.gather(*asked)
        return len(world.api.calls)

    assert run(story) == 1  # all come from one address


@pytest.mark.parametrize(
    ("token", "headers", "jobs", "hidden"),
    [
        pytest.param("all", {}, ["team-a/one", "team-b/two"], 0, id="who may list all"),
        pytest.param("team-a", {}, ["team-a/one"], 1, id="who may list those of one namespace"),
        pytest.param("team-a", {"closeknit_namespaces": "team-b"}, [], 2, id="naming one does not open it"),
        pytest.param("nothing", {}, [], 2, id="who may list none"),
        pytest.param("system:serviceaccount:team-b:x", {}, [], 2, id="an account without the right"),
    ],
)
def test_jobs_are_shown_to_who_may_list_them(token: str, headers: dict[str, str], jobs: list[str], hidden: int) -> None:
    async def story() -> dict[str, Any]:
        return await first(await World().ask(token, **headers))

    told = run(story)
    assert (sorted(told.get("jobs", {})), told["hidden"]) == (jobs, hidden)
    assert told["totals"]["gpus"]["held"] == 8


def test_kueueviz_streams_are_bounded_by_token_and_in_all() -> None:
    async def story() -> tuple[list[int], int]:
        world, kept, statuses = World(), list[AsyncGenerator[bytes, None]](), []
        for number in range(served.STREAMS + 1):
            answer = await world.ask(f"reader-{number // served.STREAMS_OF_ONE}")
            statuses.append(200 if isinstance(answer, StreamedReply) else answer.status)
            if isinstance(answer, StreamedReply):
                await anext(answer.pieces)
                kept.append(answer.pieces)
        one_more = await world.ask("reader-0")
        assert isinstance(one_more, Reply)
        await kept[0].aclose()
        again = await world.ask("reader-0")
        return statuses, one_more.status * isinstance(again, StreamedReply)

    assert run(story) == ([200] * served.STREAMS + [429], 429)


def test_nothing_is_worked_out_while_nobody_watches() -> None:
    async def story() -> tuple[int, int, int]:
        world = World()
        follows = asyncio.create_task(world.feed.run())
        await asyncio.sleep(60)
        before = world.feed.scenes
        answer = await world.ask()
        assert isinstance(answer, StreamedReply)
        await anext(answer.pieces)
        for second in range(10):
            world.cluster = STORY.cluster.at(NOW)
            await asyncio.sleep(0.3)
            del second
        watched = world.feed.scenes
        await answer.pieces.aclose()
        world.cluster = STORY.cluster.at(NOW)
        await asyncio.sleep(60)
        follows.cancel()
        return before, watched, world.feed.scenes - watched

    before, watched, after = run(story)
    assert (before, after) == (0, 0)
    assert 3 <= watched <= 4  # in three seconds


def test_the_page_has_no_data_and_says_what_it_may_do() -> None:
    async def story() -> dict[str, Reply | StreamedReply]:
        pages = {path: page for path, page in World().pages.items() if path != "/map/stream"}
        return {path: await page(HttpRequest(path, HOST, "a")) for path, page in pages.items()}

    told = run(story)
    assert told["/map"].status == 308
    assert {"/map/", "/map/main.js", "/map/map.css", "/map/icon.svg"} <= told.keys()
    for path, reply in told.items():
        policy = reply.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert b"gpu-1" not in reply.text
        assert path == "/map" or reply.status == 200


def test_no_script_sets_text_as_markup_or_keeps_a_token() -> None:
    async def story() -> dict[str, Reply | StreamedReply]:
        pages = World().pages.items()
        return {path: await page(HttpRequest(path, HOST, "a")) for path, page in pages if path.endswith(".js")}

    for path, reply in run(story).items():
        code = re.sub(r"//.*", "", reply.text.decode())
        for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "cookie", "sessionStorage"):
            assert word not in code, (path, word)


def test_kueueviz_a_reader_that_takes_nothing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "STUCK_S", 0.2)
    stage = Stage.of(eight())

    async def story() -> int:
        async with stage.served() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=16)
            writer.write(b"GET /map/stream HTTP/1.1\r\nHost: localhost\r\nCloseknit-Map: 1\r\n\r\n")
            await reader.readline()
            feed = stage.feed
            await feed._watched.wait()
            big = b": " + b"x" * (1 << 18) + b"\n\n"
            for _ in range(400):
                if not feed._watchers:
                    break
                feed.frames = lambda *_: (big,) * 40  # type: ignore[method-assign]
                feed._show(scene(stage.cluster, None, NOW, "0.1", EMPTY_SCENE))
                await asyncio.sleep(0.01)
            writer.close()
            return feed._watchers

    assert asyncio.run(story()) == 0


def test_a_stream_outlives_the_time_of_a_request_and_makes_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turnstile, "CONNECTION_S", 0.2)
    monkeypatch.setattr(served, "BEAT_S", 0.05)
    stage = Stage.of(STORY)

    async def story() -> tuple[bytes, bytes]:
        async with stage.served() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /map/stream HTTP/1.1\r\nHost: localhost\r\nCloseknit-Map: 1\r\n\r\n")
            await asyncio.sleep(0.6)
            told = await reader.read(1 << 20)
            await asyncio.sleep(0.2)
            later = await reader.read(1 << 20)
            writer.close()
            return told, later

    told, later = asyncio.run(story())
    assert b"text/event-stream" in told
    assert b"gpu-1" in told
    assert later.startswith(b": beat")
