"""Where a Pod goes that asks for a part of a GPU, or for none: where the fewest GPUs are left without CPU for them.

A GPU is stranded by what its node lacks of the CPU that a GPU takes on average, of all Pods of the list that ask for
GPUs. FGD knows that list, too. To begin a GPU that nobody shares yet counts as BEGUN of a GPU stranded. Of equal nodes
it is the first, of equal GPUs on it the one with the least room.
"""

import numpy as np
import numpy.typing as npt

from bench.openb import MILLI, Ints, Kind, Left, kinds
from bench.openb_peers import Taken

BEGUN = 0.3  # the first that was tried: 95.52 on the first seed of `default`, where 0.1 gives 95.62 and 0.5 95.45


class Stranded:
    """The rule, on what the nodes have left."""

    def __init__(self, name: str, left: Left) -> None:
        """For the Pods of this list."""
        listed = [(kind, count) for kind, count in kinds(name).items() if kind.gpus]
        asked = sum(kind.gpus * kind.milli * count for kind, count in listed)
        self._cpu_per_part = sum(kind.cpu * count for kind, count in listed) / asked
        self._left = left

    def take(self, kind: Kind) -> Taken | None:
        """The node and, for a part of a GPU, which."""
        left = self._left
        able = left.takes(kind)
        if not able.any():
            return None
        parts: Ints = left.gpus.sum(axis=1)
        cost = self._stranded(left.cpu - kind.cpu, parts - kind.milli) - self._stranded(left.cpu, parts)
        gpus = np.where(left.gpus >= max(kind.milli, 1), left.gpus, 2 * MILLI)
        if kind.gpus:
            cost += BEGUN * MILLI * (gpus.min(axis=1) == MILLI)
        node = int(np.argmin(np.where(able, np.round(cost, 6), np.inf)))  # of sums of floats
        return node, (int(np.argmin(gpus[node])),) if kind.gpus else ()

    def _stranded(self, cpu: Ints, parts: Ints) -> npt.NDArray[np.float64]:
        """Parts of GPUs on each node that its CPU does not do for."""
        found: npt.NDArray[np.float64] = np.maximum(0, parts - cpu / self._cpu_per_part)
        return found
