"""How long to leave an API server alone after failures in a row: one rule for everybody who asks it again.

It stands here and not in a library: tenacity and aiohttp-retry repeat one call, whereas ours go back to their loop in
between, and neither knows both the half that is always waited and the time that the server asks for.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

# What a server, or a proxy before it, may ask for at most: an API server that sheds load asks for seconds, and one odd
# Retry-After must not silence a stream for a day.
LONGEST_ASKED_S = 60.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double from `first_s` to `longest_s`, the upper half of each by chance.

    By chance, so that those who failed together do not come back together; never less than half, so that a server that
    is down is left alone.
    """

    first_s: float
    longest_s: float
    jitter: Callable[[], float] = random.random
    """Gives 0 to 1."""

    def pause_s(self, failures: int, asked_s: float | None = None) -> float:
        """Seconds to wait after so many failures in a row, on top of what the server asks for (retry_after_s), up to a
        minute of that: it asks everybody whom it turns away for the same, and they would come back together."""
        asked_s = min(LONGEST_ASKED_S, max(0.0, asked_s or 0.0))
        if failures < 1:
            return asked_s
        pause_s = min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, 16))  # no float overflows
        return asked_s + pause_s * (0.5 + 0.5 * self.jitter())
