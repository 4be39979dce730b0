"""An upper bound of what the NVLinks of a set can carry: how much of its data they can spread at all.

A collective brings what each GPU has to all others, along spanning trees of the set. Trees pack as tightly as the
worst way of cutting the set into parts allows (Nash-Williams, Tutte): they share the links between the parts, and each
of them crosses one time less than there are parts, at least. NCCL's rings are one way of using the links; of sets
whose rings are equal the one with more room is better for trees, for point-to-point traffic and for other libraries.
"""

from collections.abc import Sequence

MANY_GPUS = 8  # of a set: beyond, there are too many ways of cutting it


class TreeBound:
    """The bounds of one machine's sets, as bit masks over positions; what was worked out once is remembered."""

    def __init__(self, links: Sequence[Sequence[int]]) -> None:
        """`links`: between each two GPUs, in any unit."""
        self._links = links
        self._inside: dict[int, int] = {0: 0}
        self._kept: dict[int, tuple[int, ...]] = {0: (0,)}
        self._found: dict[int, float] = {}

    def most(self, mask: int) -> float:
        """In links; 0 where NVLinks do not join the whole set, and for less than 2 or more than MANY_GPUS GPUs."""
        found = self._found.get(mask)
        if found is None:
            found = self._found[mask] = self._most(mask)
        return found

    def _most(self, mask: int) -> float:
        if not 1 < mask.bit_count() <= MANY_GPUS:
            return 0.0
        inside = self._links_inside(mask)
        kept = enumerate(self._most_kept(mask))
        return min((inside - links) / (parts - 1) for parts, links in kept if parts > 1)

    def _most_kept(self, mask: int) -> tuple[int, ...]:
        """Of 0, 1, 2, … parts that the set is cut into: the most links that can stay inside them."""
        found = self._kept.get(mask)
        if found is None:
            low = mask & -mask
            most = [-1] * (mask.bit_count() + 1)
            rest = others = mask & ~low
            while True:  # every part that the lowest GPU can be in
                links = self._links_inside(low | others)
                for parts, kept in enumerate(self._most_kept(rest & ~others)):
                    if kept >= 0:
                        most[parts + 1] = max(most[parts + 1], links + kept)
                if not others:
                    break
                others = others - 1 & rest
            found = self._kept[mask] = tuple(most)
        return found

    def _links_inside(self, mask: int) -> int:
        found = self._inside.get(mask)
        if found is None:
            top = mask.bit_length() - 1
            rest = mask & ~(1 << top)
            row = self._links[top]
            own = sum(row[position] for position in range(top) if rest >> position & 1)
            found = self._inside[mask] = own + self._links_inside(rest)
        return found
