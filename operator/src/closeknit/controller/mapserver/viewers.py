"""Who may watch the map, and whose jobs it shows them: as the API server says, asked as little as possible."""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256

import msgspec

from closeknit.api.names import GROUP
from closeknit.kube.errors import ApiError
from closeknit.runtime.access import GOOD_S, REMEMBERED, TOO_MANY, UNAVAILABLE, Access, Caller
from closeknit.runtime.exchange import HttpRequest
from closeknit.runtime.web import shown
from closeknit.webmap.frames import OPEN, Veil

NAMESPACES = "closeknit-namespaces"
"""Header by which a reader names the namespaces whose jobs it would see, if it may not list those of all."""
MOST_NAMESPACES = 16  # asked about for one reader, each by one review
# In a minute: two lists of namespaces by each token, and eight by all tokens that one user makes.
REVIEWS_OF_ONE, REVIEWS_OF_USER = 2 * (MOST_NAMESPACES + 1), 8 * (MOST_NAMESPACES + 1)
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ACCOUNT = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody who may watch."""

    key: bytes
    """The same for the same token; empty where nobody is asked for one."""
    veil: Veil
    user: str = ""
    """The same for all tokens of one account."""


class _Rights:
    """What was answered about one user, and how much was asked."""

    def __init__(self) -> None:
        self.answers: dict[tuple[bytes, str], tuple[float, bool]] = {}
        """By who that is (groups and more are a token's) and namespace: when, and whether he may list jobs there."""
        self.asking = asyncio.Lock()
        """Many tabs of one user ask once."""

    def forget(self, now: float) -> None:
        """All answers that are too old."""
        self.answers = {about: told for about, told in self.answers.items() if now - told[0] < GOOD_S}


class Viewers:
    """Asks about viewers, and remembers what was answered for a minute."""

    def __init__(self, access: Access | None, with_jobs: Callable[[], Iterable[str]]) -> None:
        """`access` None: everybody who reaches the address may see everything. `with_jobs` gives the namespaces that
        have jobs, in order."""
        self._access = access
        self._with_jobs = with_jobs
        self._rights: OrderedDict[str, _Rights] = OrderedDict()  # by user, the one who came last at the end

    async def viewer(self, request: HttpRequest) -> Viewer | int:
        """Who asks; else the status that says why not, as `Access.status` has it, and TOO_MANY where a user has more
        asked about himself than a minute has room for."""
        if self._access is None:
            return Viewer(b"", OPEN)
        caller = await self._access.caller(shown(request), request.path, request.address)
        if isinstance(caller, int):
            return caller
        user = str(caller.subject.get("user", ""))
        rights = self._rights.pop(user, None) or _Rights()
        self._rights[user] = rights
        if len(self._rights) > REMEMBERED:
            self._rights.popitem(last=False)
        try:
            async with rights.asking:
                veil = await self._veil(self._access, caller, rights, request.headers.get(NAMESPACES, ""))
        except ApiError:
            return UNAVAILABLE
        return TOO_MANY if veil is None else Viewer(caller.key, veil, user)

    async def _veil(self, access: Access, caller: Caller, rights: _Rights, asked: str) -> Veil | None:
        """None where it would take more reviews than one user may have asked."""
        now = asyncio.get_running_loop().time()
        rights.forget(now)
        who = sha256(msgspec.json.encode(caller.subject, order="sorted")).digest()

        async def may_list(namespace: str) -> bool | None:
            if (known := rights.answers.get((who, namespace))) is not None:
                return known[1]
            of_token = sum(each == who for each, _ in rights.answers)
            if of_token >= REVIEWS_OF_ONE or len(rights.answers) >= REVIEWS_OF_USER:
                return None
            found = await access.allows(caller, _listing(namespace))
            rights.answers[who, namespace] = now, found
            return found

        everywhere = await may_list("")
        if everywhere is not False:
            return OPEN if everywhere else None
        found = set[str]()
        for namespace in self._candidates(caller, asked):
            may = await may_list(namespace)
            if may is None:
                return None
            if may:
                found.add(namespace)
        return Veil(frozenset(found))

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
