"""Resources of Lodgers: sums by node, updated by every event."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from immutables import Map

from closeknit.api.names import POD_COUNT
from closeknit.cluster.immutable.table import EMPTY
from closeknit.cluster.objects.pod_requests import CPU, MEMORY, NO_AMOUNTS, Amounts
from closeknit.cluster.pods.pod import Lodger


@dataclass(frozen=True, slots=True)
class OtherPods:
    """Sum of the Lodgers' resources by node, each one Pod. Shared read-only by versions."""

    taken: Map[str, Amounts] = EMPTY

    def on(self, node: str) -> Amounts:
        """The sum for a node."""
        return self.taken.get(node, NO_AMOUNTS)

    def after(self, moves: Iterable[tuple[Lodger | None, Lodger | None]]) -> Self:
        """The sums after Lodgers have come, changed and gone, given as (before, now), None for none."""
        sums: dict[str, dict[str, int]] = {}
        for before, now in moves:
            for lodger, by in ((now, 1), (before, -1)):
                if lodger is None:
                    continue
                if lodger.node not in sums:
                    sums[lodger.node] = dict(self.on(lodger.node))
                there = sums[lodger.node]
                for name, amount in ((POD_COUNT, 1), (CPU, lodger.cpu), (MEMORY, lodger.memory), *lodger.others):
                    there[name] = there.get(name, 0) + amount * by
        taken = self.taken.mutate()
        for node, there in sums.items():
            if there[POD_COUNT]:
                taken[node] = {name: amount for name, amount in there.items() if amount}
            elif node in taken:
                del taken[node]
        return type(self)(taken.finish())
