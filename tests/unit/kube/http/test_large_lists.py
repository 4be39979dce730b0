"""Lists of large objects: what is there of them at once, and that all of them arrive."""

import asyncio
import json
import ssl
import tracemalloc
from pathlib import Path

import pytest
from aiohttp import web

from closeknit.kube.api import Resource
from closeknit.kube.http.connections import LargeAnswer
from closeknit.kube.http.http_api import HttpApi
from closeknit.kube.http.http_session import HttpSession
from faults.http_server import serving

PODS = Resource("", "v1", "pods")
MB = 1_000_000


class Served:
    """An API server's list of so many objects of so many bytes, sent object by object; `limits` is what was asked."""

    def __init__(self, count: int, size: int) -> None:
        self.count = count
        self.limits: list[int] = []
        self.sent = 0
        self._filling = b'"%b"' % (b"x" * size)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        begin, limit = int(request.query.get("continue", "0")), int(request.query["limit"])
        self.limits.append(limit)
        end = min(begin + limit, self.count)
        meta = {"resourceVersion": "7", "continue": str(end) if end < self.count else ""}
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"kind":"PodList","metadata":%b,"items":[' % json.dumps(meta).encode())
        for number in range(begin, end):
            head = b'{"metadata":{"name":"p%d"},"spec":' % number
            for piece in (b"," if number > begin else b"", head, self._filling, b"}"):
                await response.write(piece)
                self.sent += len(piece)
        await response.write(b"]}")
        await response.write_eof()
        return response


async def names(api: HttpApi) -> list[str]:
    """As a reflector lists: page by page, each let go before the next."""
    found: list[str] = []
    token: str | None = None
    while True:
        page = await api.list(PODS, continue_token=token)
        found += [str(json.loads(item)["metadata"]["name"]) for item in page.items]
        token = page.continue_token
        del page
        if token is None:
            return found


def test_of_a_hundred_large_objects_a_few_are_there_at_once(tmp_path: Path) -> None:
    served = Served(100, MB)

    async def main() -> tuple[list[str], int]:
        async with serving(served.answer, tmp_path) as api:
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            found = await names(api)
            peak = tracemalloc.get_traced_memory()[1] - before
            tracemalloc.stop()
        return found, peak

    found, peak = asyncio.run(main())
    assert found == [f"p{number}" for number in range(100)]
    assert peak < 60 * MB, "a page is a few times there while it is taken apart"
    assert max(served.limits[3:]) <= 10, "it is known how large they are"
    assert served.sent < 200 * MB, "what is given up and asked for again"


def test_pages_grow_again_once_objects_are_small(tmp_path: Path) -> None:
    large, small = Served(20, MB), Served(3000, 1000)

    async def main() -> None:
        handler = large

        async def answer(request: web.Request) -> web.StreamResponse:
            return await handler.answer(request)

        async with serving(answer, tmp_path) as api:
            await names(api)
            handler = small
            assert len(await names(api)) == 3000

    asyncio.run(main())
    assert min(large.limits) < 10
    assert max(small.limits) == 500


def test_pages_of_usual_objects_are_as_large_as_was_asked_for(tmp_path: Path) -> None:
    served = Served(1200, 15_000)

    async def main() -> None:
        async with serving(served.answer, tmp_path) as api:
            assert len(await names(api)) == 1200

    asyncio.run(main())
    assert served.limits == [500, 500, 500]


def test_an_object_of_any_size_is_read(tmp_path: Path) -> None:
    served = Served(6, 12 * MB)

    async def main() -> None:
        async with serving(served.answer, tmp_path) as api:
            assert len(await names(api)) == 6

    asyncio.run(main())


def test_what_comes_through_a_proxy_is_given_up_likewise(tmp_path: Path) -> None:
    served = Served(10, MB)

    async def main() -> None:
        async with serving(served.answer, tmp_path) as api:
            host = api._requests._login.host
            session = HttpSession(host, ssl.create_default_context(), None, None, connect_timeout_s=5)
            try:
                target = "/api/v1/pods?limit=10"
                assert (
                    len((await session.answer("GET", target, None, {}, timeout_s=9, most_bytes=11 * MB)).body) > 10 * MB
                )
                with pytest.raises(LargeAnswer, match="the answer has more than 5000000 bytes"):
                    await session.answer("GET", target, None, {}, timeout_s=9, most_bytes=5 * MB)
            finally:
                await session.close()

    asyncio.run(main())
