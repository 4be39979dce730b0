"""The sets of a machine that is too dear to search: one set of each size, and nothing said of its bandwidth."""

from collections.abc import Callable

from closeknit.api.nodetopology import Transport
from closeknit.machine.graph import Machine
from closeknit.machine.islands import islands
from closeknit.placement.ask import Ask, Choice
from closeknit.placement.bandwidth import ALONE, EVERY_NIC, NicAccess, Nics, SetBandwidth, active_nics, dealt
from closeknit.placement.known import Known
from closeknit.placement.paths import UNIT, Paths, PathType
from closeknit.placement.rings import NO_RING, Rings
from closeknit.placement.sets import Sets
from closeknit.placement.subsets import positions_of

_UNKNOWN = SetBandwidth(NO_RING / UNIT, known=False, worst=PathType.SYS)


class RoughSets(Sets):
    """Of each size the lowest GPUs are the set, those of the largest NVLink island first. Worth what NCCL assumes where
    it finds no ring, so that every machine that could be searched comes before it."""

    is_rough = True

    def __init__(self, machine: Machine, search: Callable[[Paths], Rings]) -> None:
        """`search` is not asked."""
        super().__init__(machine, search)
        self._grown: Known[int, tuple[int, ...]] = Known()

    def learn(self) -> bool:
        """There is nothing to learn."""
        return False

    def bandwidth(self, mask: int) -> SetBandwidth:
        """Unknown."""
        return ALONE if mask.bit_count() < 2 else _UNKNOWN

    def nics(self, mask: int, transport: Transport, access: NicAccess = EVERY_NIC) -> Nics:
        """Every active NIC that it can be given: which are near is not looked for."""
        key = (mask if access.is_dealt else self.every, transport, access)
        found = self._nics.get(key)
        if found is None:
            rows = frozenset(active_nics(self.machine, transport, access.taken))
            if access.is_dealt:
                rows = dealt(self.machine, transport, [rows], mask.bit_count())
            found = self._nics[key] = Nics(tuple(sorted(rows)), None)
        return found

    def of_count(self, pool: int, count: int) -> tuple[int, ...]:
        """The one set of `count` GPUs out of the pool, or none."""
        order = self._order(pool)
        return (sum(1 << position for position in order[:count]),) if count <= len(order) else ()

    def judge(self, mask: int, free: int) -> Choice:  # noqa: ARG002 - whatever else is free
        """As if it cost nothing: there is no other to compare with."""
        return Choice(mask, 0.0, 0, 1)

    def is_indifferent(self, pool: int, ask: Ask) -> bool:
        """Only where there is nothing to choose."""
        return ask.gpus == pool.bit_count() and self.value(pool, ask) is not None

    def _most(self, mask: int) -> float:
        return self.bandwidth(mask).order_gb_s

    def _order(self, pool: int) -> tuple[int, ...]:
        found = self._grown.get(pool)
        if found is None:
            parts = sorted(islands(self.machine, positions_of(pool)), key=len, reverse=True)
            found = self._grown[pool] = tuple(position for part in parts for position in part)
        return found
