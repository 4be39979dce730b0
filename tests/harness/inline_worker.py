"""A worker without a thread, for tests on a virtual clock."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class InlineWorker:
    """Does its work at once."""

    async def run(self, work: Callable[[], T]) -> T:
        """What the work gives, or raises."""
        return work()
