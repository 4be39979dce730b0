"""Who may read /metrics when it is served beyond localhost: the API server says (TokenReview, SubjectAccessReview)."""

import asyncio
from hashlib import sha256

from closeknit.kube.api import Api, JsonObject, Resource
from closeknit.kube.errors import ApiError

TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", namespaced=False)
SUBJECT_ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", namespaced=False)

REMEMBERED_S = 60.0  # a scraper comes every 15 to 60 s
REMEMBERED_TOKENS = 1024  # whoever can reach the port can invent tokens


class Access:
    """Asks the API server, and remembers its answers for a minute."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: dict[bytes, tuple[float, int]] = {}

    async def status(self, authorization: str | None, path: str) -> int:
        """200 if the bearer of this Authorization header may get the path, else 401, 403, or 503 if nobody can tell."""
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return 401
        now = asyncio.get_running_loop().time()
        key = sha256(f"{path} {token.strip()}".encode()).digest()
        known = self._known.get(key)
        if known is not None and now < known[0]:
            return known[1]
        try:
            status = await self._asked(token.strip(), path)
        except ApiError:
            return 503
        if len(self._known) >= REMEMBERED_TOKENS:
            self._known.clear()
        self._known[key] = (now + REMEMBERED_S, status)
        return status

    async def _asked(self, token: str, path: str) -> int:
        review = _review(TOKEN_REVIEWS, "TokenReview", {"token": token})
        answer = (await self._api.create(TOKEN_REVIEWS, review)).get("status", {})
        if not answer.get("authenticated"):
            return 401
        user = answer.get("user", {})
        spec = {
            "nonResourceAttributes": {"path": path, "verb": "get"},
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups", []),
            "extra": user.get("extra", {}),
        }
        review = _review(SUBJECT_ACCESS_REVIEWS, "SubjectAccessReview", spec)
        allowed = (await self._api.create(SUBJECT_ACCESS_REVIEWS, review)).get("status", {}).get("allowed")
        return 200 if allowed else 403


def _review(resource: Resource, kind: str, spec: JsonObject) -> JsonObject:
    return {"apiVersion": resource.api_version, "kind": kind, "metadata": {}, "spec": spec}
