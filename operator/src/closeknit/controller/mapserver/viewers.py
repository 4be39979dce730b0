"""Who may watch the map, and whose jobs it shows them: as the API server says, asked as little as possible."""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from closeknit.api.names import GROUP
from closeknit.kube.errors import ApiError
from closeknit.runtime.access import GOOD_S, REMEMBERED, UNAVAILABLE, Access, Caller
from closeknit.runtime.exchange import HttpRequest
from closeknit.runtime.web import shown
from closeknit.webmap.frames import OPEN, Veil

NAMESPACES = "closeknit-namespaces"
"""Header by which a reader names the namespaces whose jobs it would see, if it may not list those of all."""
MOST_NAMESPACES = 16  # asked about for one reader, each by one review
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ACCOUNT = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody who may watch."""

    key: bytes
    """The same for the same token; empty where nobody is asked for one."""
    veil: Veil


class Viewers:
    """Asks about viewers, and remembers what was answered for a minute."""

    def __init__(self, access: Access | None, with_jobs: Callable[[], Iterable[str]]) -> None:
        """`access` None: everybody who reaches the address may see everything. `with_jobs` gives the namespaces that
        have jobs, in order."""
        self._access = access
        self._with_jobs = with_jobs
        self._veils: OrderedDict[tuple[bytes, str], tuple[float, Veil]] = OrderedDict()

    async def viewer(self, request: HttpRequest) -> Viewer | int:
        """Who asks; else the status that says why not, as `Access.status` has it."""
        if self._access is None:
            return Viewer(b"", OPEN)
        caller = await self._access.caller(shown(request), request.path, request.address)
        if isinstance(caller, int):
            return caller
        try:
            return Viewer(caller.key, await self._veil(self._access, caller, request.headers.get(NAMESPACES, "")))
        except ApiError:
            return UNAVAILABLE

    async def _veil(self, access: Access, caller: Caller, asked: str) -> Veil:
        now, key = asyncio.get_running_loop().time(), (caller.key, asked)
        known = self._veils.get(key)
        if known is not None and now - known[0] < GOOD_S:
            return known[1]
        veil = OPEN
        if not await access.allows(caller, _listing("")):
            found = [each for each in self._candidates(caller, asked) if await access.allows(caller, _listing(each))]
            veil = Veil(frozenset(found))
        self._veils.pop(key, None)
        self._veils[key] = now, veil
        if len(self._veils) > REMEMBERED:
            self._veils.popitem(last=False)
        return veil

    def _candidates(self, caller: Caller, asked: str) -> list[str]:
        """Namespaces that he names; without any his own, and those with jobs."""
        named = [each for part in asked.split(",") if _NAMESPACE.fullmatch(each := part.strip())]
        if not named:
            user = str(caller.subject.get("user", ""))
            own = [user.removeprefix(_ACCOUNT).partition(":")[0]] if user.startswith(_ACCOUNT) else []
            named = [*own, *self._with_jobs()]
        return list(dict.fromkeys(named))[:MOST_NAMESPACES]


def _listing(namespace: str) -> dict[str, str]:
    return {"group": GROUP, "resource": "trainingjobs", "verb": "list", "namespace": namespace}
