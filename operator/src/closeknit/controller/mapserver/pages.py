"""The paths under /map: the page, which has no data and needs no token, and the stream, which needs one.

A browser sends no token by itself, so that no other site can use one. All the same the stream asks for a header of its
own, which a page of another site cannot send without asking us first, and refuses what says that it comes from another
site, or by a name that is not ours (DNS rebinding): on localhost it needs no token.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Mapping
from importlib.resources import files

import msgspec

from closeknit.controller.mapserver.feed import MapFeed
from closeknit.controller.mapserver.viewers import Viewer, Viewers
from closeknit.runtime.access import FORBIDDEN, TOO_MANY, UNAUTHORIZED, UNAVAILABLE
from closeknit.runtime.exchange import Handler, HttpRequest, Reply, StreamedReply
from closeknit.runtime.web import is_own_name
from closeknit.webmap.scene import Scene

STREAM = "/map/stream"
"""The only path with data; the right to get it is asked about."""
MARK = "closeknit-map"
"""A header that the page sends with each request for data."""
STREAMS = 64  # at once, at one deep copy of what its reader has not read yet
STREAMS_OF_ONE = 8  # token: tabs of one person
STREAMS_OF_USER = 32  # however many tokens it makes: an account that a team shares leaves half of them to others
BEAT_S = 15.0  # so that what is between knows that the stream lives, and the page when it does not
# How often it is looked at again whether the token may; Access remembers what was said for a minute. With the
# 15 s that a reader has for one piece, and the 5 s for what he has not taken at the end, a stream ends within 90 s.
REVIEW_S = 5.0
UNKNOWN_S = 120.0  # without an answer of the API server: then it ends, as it would with a token that was revoked
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_WORDS = {
    UNAUTHORIZED: b"a token is needed: kubectl create token NAME",
    FORBIDDEN: b"this token may not get /map/stream: bind its user to the ClusterRole closeknit-map-viewer",
    TOO_MANY: b"too many ask at once: try again in some seconds",
    UNAVAILABLE: b"the API server does not say whether this token may: try again in some seconds",
}


class MapPages:
    """Handlers for the web server."""

    def __init__(self, feed: MapFeed, viewers: Viewers) -> None:
        self._feed = feed
        self._viewers = viewers
        self._streams: Counter[bytes] = Counter()
        """By token."""
        self._users: Counter[str] = Counter()

    def handlers(self) -> Mapping[str, Handler]:
        """By path."""
        found: dict[str, Handler] = {"/map": _to_the_page, STREAM: self._stream}
        for asset in sorted(files(__package__).joinpath("assets").iterdir(), key=lambda each: each.name):
            kind = _TYPES.get(asset.name.rpartition(".")[2])
            if kind is not None:
                page = _Page(Reply(200, asset.read_bytes(), f"{kind}; charset=utf-8", _HEADERS))
                found["/map/" if asset.name == "index.html" else f"/map/{asset.name}"] = page.show
        return found

    async def _stream(self, request: HttpRequest) -> Reply | StreamedReply:
        if MARK not in request.headers or is_foreign(request):
            return _refusal(FORBIDDEN, b"the map is read by its own page only")
        viewer = await self._viewers.viewer(request)
        if isinstance(viewer, int):
            return _refusal(viewer, _WORDS.get(viewer, b""))
        if self._streams.total() >= STREAMS:
            return _refusal(TOO_MANY, b"too many maps are open: close one")
        if viewer.key and self._streams[viewer.key] >= STREAMS_OF_ONE:
            return _refusal(TOO_MANY, b"too many maps are open with this token: close one")
        if viewer.user and self._users[viewer.user] >= STREAMS_OF_USER:
            return _refusal(TOO_MANY, b"too many maps are open for this user: close one")
        return StreamedReply(self._pieces(request, viewer), "text/event-stream", _HEADERS)

    async def _pieces(self, request: HttpRequest, viewer: Viewer) -> AsyncGenerator[bytes, None]:
        """Events until the reader may not, or does not, read any more."""
        clock = asyncio.get_running_loop().time
        self._streams[viewer.key] += 1
        self._users[viewer.user] += 1
        self._feed.enter()
        try:
            seen: Scene | None = None
            left = deque[bytes]()
            """Frames of `seen` that are still to be sent."""
            veil, beat_at, review_at, known_at = viewer.veil, clock() + BEAT_S, clock() + REVIEW_S, clock()
            yield b": closeknit\n\n"
            while True:
                if clock() >= review_at:  # also between the frames of one moment, which a slow reader takes minutes for
                    found = await self._viewers.viewer(request)
                    review_at = clock() + REVIEW_S
                    if isinstance(found, Viewer):
                        known_at = clock()
                        if found.veil != veil:
                            seen, veil = None, found.veil
                            left.clear()
                    elif found not in {UNAVAILABLE, TOO_MANY} or clock() - known_at > UNKNOWN_S:
                        yield b"event: end\ndata: " + msgspec.json.encode({"status": found}) + b"\n\n"
                        return
                if not left and (now := self._feed.scene) is not None and now is not seen:
                    left.extend(self._feed.frames(seen, veil))
                    seen = now
                if left:
                    yield left.popleft()
                elif clock() >= beat_at:
                    yield b": beat\n\n"
                    beat_at = clock() + BEAT_S
                else:
                    await self._feed.change(max(0.0, min(beat_at, review_at) - clock()))
        finally:
            self._feed.leave()
            self._streams[viewer.key] -= 1
            self._users[viewer.user] -= 1
            self._streams += Counter()  # forgets those that have none left
            self._users += Counter()


class _Page:
    """One file of the page."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    async def show(self, request: HttpRequest) -> Reply:
        """The file; nothing under a name that is not ours."""
        return self._reply if is_own_name(request) else _refusal(FORBIDDEN, b"this is not a name of this server")


async def _to_the_page(_: HttpRequest) -> Reply:
    return Reply(308, headers={"Location": "map/", **_HEADERS})


def _refusal(status: int, words: bytes) -> Reply:
    return Reply(status, words, headers=_HEADERS)


def is_foreign(request: HttpRequest) -> bool:
    """Whether a browser says that another site asks, or asks by a name that may be another's."""
    headers = request.headers
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != headers.get("host", ""):
        return True
    return headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"} or not is_own_name(request)
