"""Takes a Lease and keeps it: the shell around `Candidate`, on the event loop.

client-go's elector is Go's, and that of the Python client measures by the wall clock, goes on working after a loss and
never releases (decision 0015).
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

from closeknit.kube.api import Api, JsonObject
from closeknit.kube.errors import AlreadyExists, ApiError, Conflict, Invalid, NotFound
from closeknit.kube.lease import (
    LEASE_S,
    LEASES,
    RENEW_DEADLINE_S,
    RETRY_S,
    Abdicate,
    Candidate,
    Lease,
    StandBy,
    Write,
    lease,
)

# A standby looks so often, and who leads tries so soon after a failure. A Lease that was released is seen after this at
# most; it costs the API server two reads of one small object a second.
POLL_S = 0.5
# So long one request may take: three tries fit between two renewals and the deadline.
REQUEST_S = 3.0

_log = logging.getLogger(__name__)


class LeaseLost(Exception):  # noqa: N818 -- a fact about the Lease
    """Another one may lead from now on, or soon."""


def boot_time() -> float:
    """Seconds on a clock that nobody sets, and that goes on while a process is stopped or its machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Elector:
    """One candidate for the Lease of this name. `leads` is set by the first take, and for good: a loss is final.

    `on_lost` is called at once when the Lease may go to another one, wherever that is noticed, and is to end the
    process: what is under way must not go on.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        identity: str,
        highest_epoch: Callable[[], int],
        on_lost: Callable[[str], None],
        *,
        clock: Callable[[], float] = boot_time,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.leads = asyncio.Event()
        self.is_read = False
        """Whether the API server has ever said what the Lease is, or that there is none."""
        self.last_error: ApiError | None = None
        """Of the last look or write; None while all is well."""
        self._api = api
        self._namespace = namespace
        self._name = name
        self._highest_epoch = highest_epoch
        self._on_lost = on_lost
        self._clock = clock
        self._now = now
        self._candidate = Candidate(identity)
        self._wanted_epoch = 0
        self._raised = asyncio.Event()
        self._deadline: asyncio.TimerHandle | None = None
        self._looked_at = clock()
        self._is_over = False
        self._words = "released"

    def __str__(self) -> str:
        return f"{self._namespace}/{self._name}"

    @property
    def holds(self) -> bool:
        """Whether we lead at this very moment, by our own clock."""
        return not self._is_over and self._candidate.leads(self._clock())

    @property
    def epoch(self) -> int:
        """Of our reign; 0 before it."""
        return self._candidate.epoch

    @property
    def holder(self) -> str:
        """Who has the Lease, as far as it was read; empty where that is not known."""
        return self._candidate.holder

    @property
    def idle_s(self) -> float:
        """Seconds since the last look or write ended, however it ended."""
        return self._clock() - self._looked_at

    def raise_above(self, epoch: int) -> None:
        """Has the next renewal, which is sent now, give our reign a higher epoch than this."""
        if self._wanted_epoch <= epoch:
            self._wanted_epoch = epoch + 1
            self._raised.set()

    async def run(self) -> None:
        """Waits for the Lease, takes it and keeps it. Raises LeaseLost, after `on_lost`."""
        while not self._is_over:
            pause_s = await self._turn()
            self._looked_at = self._clock()
            try:
                async with asyncio.timeout(pause_s):
                    await self._raised.wait()
            except TimeoutError:
                continue
            self._raised.clear()
        raise LeaseLost(f"{self}: {self._words}")

    async def release(self) -> None:
        """Lets others take the Lease at once. Nothing of ours may be written any more."""
        held, self._is_over = self.holds, True
        if self._deadline is not None:
            self._deadline.cancel()
        seen = self._candidate.seen
        if not held or seen is None:
            return
        try:
            try:
                await self._resign(seen)
            except (Invalid, Conflict):
                # A renewal of ours that was under way is stored, and its answer was not waited for.
                await self._look()
                seen = self._candidate.seen
                if seen is None or seen.holder != self._candidate.identity:
                    return
                await self._resign(seen)
        except ApiError as error:
            _log.warning("the Lease was not released, and runs out", extra={"lease": str(self), "error": error})
        else:
            _log.info("released the Lease", extra={"lease": str(self), "epoch": self._candidate.epoch})

    async def _resign(self, seen: Lease) -> None:
        await self._bounded(self._sent(seen.version, seen.acquired, "", self._candidate.epoch))

    async def _turn(self) -> float:
        """One look or write. Gives the seconds after which to take the next."""
        began = self._clock()
        try:
            if not self.leads.is_set():
                await self._look()
            step = self._next()
            if isinstance(step, StandBy):
                return min(POLL_S, max(0.0, step.until - self._clock()))
            if isinstance(step, Abdicate):
                self._lose(step.reason)
                return 0.0
            try:
                await self._write(step.version, step.epoch)
            except (Invalid, Conflict, AlreadyExists, NotFound):
                # It is not what we saw: who has it now is known by a look, and only a loss is acted on at once.
                await self._look()
                if isinstance(step := self._next(), Abdicate):
                    self._lose(step.reason)
                    return 0.0
                return POLL_S
        except ApiError as error:
            if self.last_error is None or self.last_error.message != error.message:
                _log.warning("the Lease %s: %s", self, error)
            self.last_error = error
            return POLL_S
        return max(0.0, began + RETRY_S - self._clock())

    def _next(self) -> StandBy | Write | Abdicate:
        return self._candidate.next(self._clock(), self._wanted_epoch if self.leads.is_set() else self._highest_epoch())

    async def _look(self) -> None:
        try:
            found: Lease | None = lease(
                await self._bounded(self._api.get(LEASES, self._name, namespace=self._namespace))
            )
        except NotFound:
            found = None
        before = self._candidate.holder
        self._candidate = self._candidate.looked(found, self._clock())
        self._answered()
        if self._candidate.holder not in {before, "", self._candidate.identity} and not self.leads.is_set():
            _log.info("standing by", extra={"lease": str(self), "leader": self._candidate.holder})

    async def _write(self, version: str, epoch: int) -> None:
        began, seen = self._clock(), self._candidate.seen
        acquired = seen.acquired if self.leads.is_set() and seen is not None else ""
        stored = lease(await self._bounded(self._sent(version, acquired, self._candidate.identity, epoch)))
        if self._is_over:
            return
        self._candidate = self._candidate.wrote(stored, epoch, began, self._clock())
        self._answered()
        self._watch_the_deadline()
        if not self.holds:
            self._lose(f"a write took longer than {RENEW_DEADLINE_S:g} s")
        elif not self.leads.is_set():
            _log.info("leading", extra={"lease": str(self), "epoch": epoch})
            self.leads.set()

    async def _sent(self, version: str, acquired: str, holder: str, epoch: int) -> JsonObject:
        moment = self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")  # for people: nobody computes with it
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": int(LEASE_S),
            "acquireTime": acquired or moment,
            "renewTime": moment,
            "leaseTransitions": epoch,
        }
        if not version:
            metadata = {"name": self._name, "namespace": self._namespace}
            body = {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": metadata, "spec": spec}
            return await self._api.create(LEASES, body, namespace=self._namespace)
        patch: list[JsonObject] = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "add", "path": "/spec", "value": spec},  # also where there is none yet
        ]
        return await self._api.json_patch(LEASES, self._name, patch, namespace=self._namespace)

    async def _bounded(self, call: Coroutine[Any, Any, JsonObject]) -> JsonObject:
        """What it answers within REQUEST_S. Raises ApiError."""
        try:
            async with asyncio.timeout(REQUEST_S):
                return await call
        except TimeoutError:
            raise ApiError(f"no answer within {REQUEST_S:g} s") from None

    def _answered(self) -> None:
        self.is_read = True
        self.last_error = None

    def _watch_the_deadline(self) -> None:
        """Has the loss noticed when it comes, whatever the next renewal does meanwhile."""
        if self._deadline is not None:
            self._deadline.cancel()
        assert self._candidate.renewed_at is not None  # noqa: S101 -- since a write of ours
        left_s = self._candidate.renewed_at + RENEW_DEADLINE_S - self._clock()
        self._deadline = asyncio.get_running_loop().call_later(max(0.0, left_s), self._at_the_deadline)

    def _at_the_deadline(self) -> None:
        if self.holds:
            self._watch_the_deadline()  # the loop's clock is ahead of ours by a little
        else:
            self._lose(f"it was not renewed within {RENEW_DEADLINE_S:g} s")

    def _lose(self, words: str) -> None:
        if not self._is_over:
            self._is_over, self._words = True, words
            _log.error("lost the Lease", extra={"lease": str(self), "reason": words})
            self._on_lost(words)
