"""Somebody who works on the objects of a cluster in his own time: the base of people, and of Kubernetes' own parts."""

import asyncio
import random

from closeknit.kube.api import Resource
from faults.store import Change
from lives.api_server import ApiServer


class Hand:
    """Takes a `step` some time after something that concerns it has changed, and whenever it asked to be woken."""

    name = "somebody"
    pause_s = (0.01, 0.1)
    """How long after a change it takes its step: at least, at most."""
    reads: tuple[Resource, ...] = ()

    def __init__(self, server: ApiServer, chance: random.Random) -> None:
        self.server = server
        self.chance = chance
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.TimerHandle | None = None
        server.observers.append(self._see)

    @property
    def time(self) -> float:
        """Seconds since the world began."""
        return self._loop.time()

    def concerns(self, resource: Resource, change: Change) -> bool:
        """Whether a change may be a reason for a step."""
        del change
        return resource in self.reads

    def step(self) -> None:
        """Does what is to be done now."""
        raise NotImplementedError

    def wake_at(self, moment: float) -> None:
        """Has it take a step then, or before."""
        if self._next is not None:
            if self._next.when() <= moment:
                return
            self._next.cancel()
        self._next = self._loop.call_at(moment, self._act)

    def wake(self) -> None:
        """Has it take a step soon."""
        if self._next is None or self._next.when() > self.time + self.pause_s[1]:
            self.wake_at(self.time + self.chance.uniform(*self.pause_s))

    def _act(self) -> None:
        self._next = None
        before, self.server.actor = self.server.actor, self.name
        try:
            self.step()
        except Exception as error:  # a mistake of this world's, not of the operator
            self.server.mistakes.append(error)
        finally:
            self.server.actor = before

    def _see(self, resource: Resource, change: Change) -> None:
        if self.concerns(resource, change):
            self.wake()
