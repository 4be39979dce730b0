"""`python -m harness.hurried_agents SPEED FLEET`: the agents of a fleet file. From SIGUSR1 on their clock runs so many
times as fast, a quiet minute in some seconds. Until then it is the machine's, as are their deadlines.
"""

import asyncio
import selectors
import signal
import sys
import time

from closeknit.agent import main as agent


class _Selector(selectors.EpollSelector):
    """Waits in hurried seconds."""

    speed = 1.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(timeout / self.speed if timeout is not None else None)


class HurriedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be made to run faster, and never jumps."""

    def __init__(self) -> None:
        self._began, self._was, self._pace = time.monotonic(), time.monotonic(), 1.0
        self._waits = _Selector()
        super().__init__(self._waits)

    def time(self) -> float:
        return self._was + (time.monotonic() - self._began) * self._pace

    def hurry(self, speed: float) -> None:
        """From now on."""
        self._was, self._began = self.time(), time.monotonic()
        self._pace = self._waits.speed = speed


class _Policy(asyncio.DefaultEventLoopPolicy):
    def __init__(self, speed: float) -> None:
        super().__init__()
        self._speed = speed

    def new_event_loop(self) -> HurriedLoop:
        loop = HurriedLoop()
        loop.add_signal_handler(signal.SIGUSR1, loop.hurry, self._speed)
        return loop


if __name__ == "__main__":
    _, speed, fleet = sys.argv
    asyncio.set_event_loop_policy(_Policy(float(speed)))
    sys.argv[1:] = ["--simulate", fleet]
    agent.main()
