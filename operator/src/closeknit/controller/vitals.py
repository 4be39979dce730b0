"""Whether the operator does what it is for, as /healthz and /readyz tell it."""

import asyncio

from closeknit.controller.leader.leadership import Leadership
from closeknit.controller.loop import RESYNC_S, SchedulingLoop
from closeknit.controller.watched_cluster import WatchedCluster

# A watch is silent for 70 s at most, and comes back within 30 s: a stream without events or errors for so
# long hangs.
SILENCE_S = 180.0
# A decision runs beside the event loop, and the longest that is known takes half a minute (the first on a machine of 16
# GPUs without switches, alone on a core; at a tenth of a core ten times that). What takes this long never ends.
LONGEST_DECISION_S = 900.0


class OperatorVitals:
    """Whether the process does what it is for."""

    def __init__(self, watched: WatchedCluster, leadership: Leadership, loop: SchedulingLoop) -> None:
        self._watched = watched
        self._leadership = leadership
        self._loop = loop

    def faults(self) -> list[str]:
        """Why the process should be restarted; empty while it is well. An API server that is down is no fault."""
        found = [
            f"nothing heard of {source} for {reflector.last_activity_s:.0f} s"
            for source, reflector in self._watched.reflectors.items()
            if reflector.synced.is_set() and reflector.last_error is None and reflector.last_activity_s > SILENCE_S
        ]
        time = asyncio.get_running_loop().time()
        since = self._loop.deciding_since
        if since is not None:
            if time - since > LONGEST_DECISION_S:
                found.append(f"one decision for {time - since:.0f} s")
        elif self._loop.cycles and time - self._loop.beat > RESYNC_S + SILENCE_S:
            found.append(f"no decision for {time - self._loop.beat:.0f} s")
        return [*found, *self._leadership.faults()]

    def gaps(self) -> list[str]:
        """What is still missing before the first decision, or before this process can take over; empty after it.

        Who stands by is ready: a rollout waits for it to replace the next Pod.
        """
        unread = [source for source, reflector in self._watched.reflectors.items() if not reflector.synced.is_set()]
        if unread:
            return [f"not read yet: {', '.join(unread)}"]
        if lacks := self._leadership.gaps():
            return lacks
        return ["no decision yet"] if self._leadership.begun.is_set() and not self._loop.cycles else []
