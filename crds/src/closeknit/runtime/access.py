"""Who may read what is served beyond localhost, /metrics say: the API server says (TokenReview, SubjectAccessReview).

It is not asked at every request: a token that loses its right, or is revoked, reads on for up to GOOD_S.

Anybody who reaches the port can invent tokens, so that what is asked is bounded: two reviews at once, one of them for
tokens that were good before, one for all others; and of those five in a second, one at a time of each address.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from closeknit.kube.api import Api, JsonObject, Resource
from closeknit.kube.errors import ApiError

TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", namespaced=False)
SUBJECT_ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", namespaced=False)

GOOD_S = 60.0  # a scraper comes every 15 to 60 s; and so long a right that was taken back still reads
BAD_S = 10.0  # who gets the right, or whose token is renewed, does not wait long
FAMILIAR_S = 3600.0  # a token that was good so recently does not queue with strangers; kubelets renew theirs every hour
REMEMBERED = 1024  # tokens; good and bad ones apart, so that no flood of bad ones drives a good one out
STRANGER_PAUSE_S = 0.2
STRANGERS_WAITING = 32  # the last one waits 6 s, less than the 10 s of a scraper

OK, UNAUTHORIZED, FORBIDDEN, TOO_MANY, UNAVAILABLE = 200, 401, 403, 429, 503


@dataclass(frozen=True, slots=True)
class Caller:
    """Who a good token belongs to."""

    key: bytes
    """Of the token and the path; the token cannot be read from it."""
    subject: Mapping[str, object]
    """As a SubjectAccessReview names it: user, uid, groups and extra."""


class Access:
    """Asks the API server, and remembers its answers: good ones for a minute, bad ones for ten seconds."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._good: OrderedDict[bytes, tuple[float, Caller]] = OrderedDict()  # when each was said, oldest first
        self._bad: OrderedDict[bytes, tuple[float, int]] = OrderedDict()
        self._familiar = asyncio.Semaphore(1)
        self._strangers = asyncio.Semaphore(1)
        self._waiting: set[str] = set()  # addresses of strangers
        self._next_stranger_at = float("-inf")

    async def status(self, authorization: str | None, path: str, address: str) -> int:
        """200 if the bearer of this Authorization header may get the path; else 401 or 403, 503 if unknown.

        429 where too many ask with unknown tokens, this address among them.
        """
        found = await self.caller(authorization, path, address)
        return OK if isinstance(found, Caller) else found

    async def caller(self, authorization: str | None, path: str, address: str) -> Caller | int:
        """The same, with who that is in place of 200."""
        scheme, _, rest = (authorization or "").partition(" ")
        token = rest.strip()
        if scheme.lower() != "bearer" or not token or not token.isascii():  # bearer tokens are ASCII (RFC 6750)
            return UNAUTHORIZED
        key = sha256(f"{path} {token}".encode()).digest()
        known = self._known(key)
        if known is not None:
            return known
        if key in self._good and _now() - self._good[key][0] < FAMILIAR_S:
            async with self._familiar:
                return self._known(key) or await self._learn(key, token, path)
        if address in self._waiting or len(self._waiting) >= STRANGERS_WAITING:
            return TOO_MANY
        self._waiting.add(address)
        try:
            async with self._strangers:
                await asyncio.sleep(self._next_stranger_at - _now())
                self._next_stranger_at = _now() + STRANGER_PAUSE_S
                return self._known(key) or await self._learn(key, token, path)
        finally:
            self._waiting.discard(address)

    async def allows(self, caller: Caller, attributes: Mapping[str, str]) -> bool:
        """Whether the caller may do this, as resourceAttributes say it. Raises ApiError. No answer is kept."""
        async with self._familiar:
            return await self._is_allowed({"resourceAttributes": dict(attributes), **caller.subject})

    def _known(self, key: bytes) -> Caller | int | None:
        """What was answered so recently that it still holds."""
        now = _now()
        if key in self._good and now - self._good[key][0] < GOOD_S:
            return self._good[key][1]
        said = self._bad.get(key)
        return said[1] if said is not None and now - said[0] < BAD_S else None

    async def _learn(self, key: bytes, token: str, path: str) -> Caller | int:
        try:
            found = await self._asked(key, token, path)
        except ApiError:
            return UNAVAILABLE
        self._good.pop(key, None)
        self._bad.pop(key, None)
        if isinstance(found, Caller):
            self._good[key] = _now(), found
        else:
            self._bad[key] = _now(), found
        for answers in (self._good, self._bad):
            if len(answers) > REMEMBERED:
                answers.popitem(last=False)
        return found

    async def _asked(self, key: bytes, token: str, path: str) -> Caller | int:
        review = _review(TOKEN_REVIEWS, "TokenReview", {"token": token})
        answer = (await self._api.create(TOKEN_REVIEWS, review)).get("status", {})
        if not answer.get("authenticated"):
            return UNAUTHORIZED
        user = answer.get("user", {})
        subject = {
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups", []),
            "extra": user.get("extra", {}),
        }
        is_allowed = await self._is_allowed({"nonResourceAttributes": {"path": path, "verb": "get"}, **subject})
        return Caller(key, subject) if is_allowed else FORBIDDEN

    async def _is_allowed(self, spec: JsonObject) -> bool:
        review = _review(SUBJECT_ACCESS_REVIEWS, "SubjectAccessReview", spec)
        return bool((await self._api.create(SUBJECT_ACCESS_REVIEWS, review)).get("status", {}).get("allowed"))


def _now() -> float:
    """Seconds on the event loop's clock."""
    return asyncio.get_running_loop().time()


def _review(resource: Resource, kind: str, spec: JsonObject) -> JsonObject:
    return {"apiVersion": resource.api_version, "kind": kind, "metadata": {}, "spec": spec}
