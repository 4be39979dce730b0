"""Whether this process decides: always, or while it holds the Lease of all replicas."""

import asyncio
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from uuid import uuid4

from closeknit.kube.api import Api
from closeknit.kube.elector import Elector, boot_time

LEASE_NAME = "closeknit-operator"
# So long the streams of what is written may take to be read once more: 50,000 Pods take some ten seconds. Who cannot
# read them cannot lead, and makes room.
CATCH_UP_S = 60.0
# A look at the Lease ends after 6 s at most, and the next begins within two.
SILENCE_S = 60.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Election:
    """Where the replicas of one operator find each other."""

    namespace: str
    identity: str
    """Of this process alone."""

    @classmethod
    def of_this_process(cls, namespace: str) -> "Election":
        """With the host's name, which in a cluster is the Pod's, for people."""
        return cls(namespace, f"{socket.gethostname()}_{uuid4()}")


class Follower(Protocol):
    """What follows the cluster, on the leader and on the standby."""

    @property
    def is_synced(self) -> bool:
        """Whether everything was read completely once."""
        ...

    @property
    def highest_epoch(self) -> int:
        """The highest with which a job that is seen was booked; 0 without any."""
        ...

    async def synced(self) -> None:
        """Returns once everything was read completely."""
        ...

    async def catch_up(self) -> None:
        """Returns once everything that leaders write is seen as it was at the call, or later."""
        ...


class Leadership(Protocol):
    """Whether this process decides."""

    begun: asyncio.Event
    """Set once it decides, for good, and has seen all that was written before."""

    @property
    def holds(self) -> bool:
        """Whether it may write at this very moment."""
        ...

    @property
    def epoch(self) -> int:
        """Written with every booking."""
        ...

    def raise_above(self, epoch: int) -> None:
        """Somebody has booked with this epoch, which is not below ours: takes a higher one, soon."""
        ...

    async def run(self) -> None:
        """Becomes the leader and stays it; ends only by an error."""
        ...

    async def release(self) -> None:
        """Lets another one lead at once. Nothing of ours is under way any more."""
        ...

    def gaps(self) -> list[str]:
        """What it lacks to lead, or to stand by."""
        ...

    def faults(self) -> list[str]:
        """Why it can do neither any more."""
        ...


class Unopposed:
    """The only process there is: nobody else is asked."""

    def __init__(self, watched: Follower) -> None:
        self.begun = asyncio.Event()
        self.epoch = 0
        self.holds = True
        self._watched = watched

    def raise_above(self, epoch: int) -> None:
        """See `Leadership`."""
        self.epoch = max(self.epoch, epoch + 1)

    async def run(self) -> None:
        """Begins as soon as everything was read."""
        await self._watched.synced()
        self.raise_above(self._watched.highest_epoch)
        self.begun.set()
        await asyncio.Event().wait()

    async def release(self) -> None:
        """Nobody waits for it."""

    def gaps(self) -> list[str]:
        """None."""
        return []

    def faults(self) -> list[str]:
        """None."""
        return []


class Elected:
    """One of several processes, of which the holder of the Lease leads.

    It stands for the Lease once everything was read. Then the streams of what a leader writes are read once more, by
    lists that begin after the Lease was taken: what its predecessor wrote a moment before is in them.
    """

    def __init__(
        self,
        api: Api,
        watched: Follower,
        election: Election,
        on_lost: Callable[[str], None],
        clock: Callable[[], float] = boot_time,
    ) -> None:
        """`on_lost` is called at once when another one may lead, and is to end the process."""
        self.begun = asyncio.Event()
        self._watched = watched
        self._on_lost = on_lost
        self._elector = Elector(
            api,
            election.namespace,
            LEASE_NAME,
            election.identity,
            lambda: watched.highest_epoch,
            on_lost,
            clock=clock,
        )

    @property
    def holds(self) -> bool:
        """See `Leadership`."""
        return self.begun.is_set() and self._elector.holds

    @property
    def epoch(self) -> int:
        """See `Leadership`."""
        return self._elector.epoch

    def raise_above(self, epoch: int) -> None:
        """See `Leadership`."""
        self._elector.raise_above(epoch)

    async def run(self) -> None:
        """Raises LeaseLost, after `on_lost`."""
        await self._watched.synced()
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._elector.run(), name="elector")
            parts.create_task(self._begin(), name="catching up")

    async def release(self) -> None:
        """See `Leadership`."""
        await self._elector.release()

    def gaps(self) -> list[str]:
        """See `Leadership`."""
        if self._elector.is_read:
            return []
        error = self._elector.last_error
        return [f"the Lease {self._elector} was not read yet{f': {error}' if error else ''}"]

    def faults(self) -> list[str]:
        """See `Leadership`."""
        if not self._watched.is_synced or self._elector.idle_s < SILENCE_S:
            return []
        return [f"the Lease {self._elector} was not looked at for {self._elector.idle_s:.0f} s"]

    async def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        await self._elector.leads.wait()
        began = loop.time()
        try:
            async with asyncio.timeout(CATCH_UP_S):
                await self._watched.catch_up()
        except TimeoutError:
            words = f"what was written before cannot be read within {CATCH_UP_S:g} s"
            _log.error("does not lead", extra={"reason": words})
            await self._elector.release()
            self._on_lost(words)
            return
        _log.info("has seen what was written before", extra={"seconds": round(loop.time() - began, 3)})
        # A job may have been booked after the epoch was chosen.
        if (highest := self._watched.highest_epoch) >= self._elector.epoch:
            self._elector.raise_above(highest)
        self.begun.set()
