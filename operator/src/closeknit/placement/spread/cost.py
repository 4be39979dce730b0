"""The order of merit of a spread: its parts in order, and a cost as one integer that compares and adds up like them."""

from typing import NamedTuple, NewType

PackedCost = NewType("PackedCost", int)
"""A Cost as one integer: the lower is the better one, and the sum of two is the cost of both."""

WIDTH = 48  # bits of one part: 65,536 nodes that each lose 1,000 GB/s, in MB/s, are 36; one is for the sign
PER_GB_S = 1000  # losses are whole MB/s, so that sums do not depend on their order


class Cost(NamedTuple):
    """The order of merit: the fields, the most important first. Each is better when lower.

    What compares costs follows from this list alone; decision 0004 says why it is in this order.
    """

    domains: tuple[int, ...]
    """How many of each level are used, outermost first, host last."""
    torn: int = 0
    """Expert groups that lie on several NVLink islands of their node."""
    stranded: int = 0
    """GPUs that their nodes have no CPU for, more than before."""
    broken: int = 0
    """Whole nodes of which only a part is taken."""
    vacancy: int = 0
    """Summed over the nodes, how many holders a node lacks of so many that it will not be whole again soon."""
    free_gpus: tuple[int, ...] = ()
    """Of the domains that are used, innermost first, without hosts: filling a rack up keeps others whole for gangs of a
    rack, and hardly any gang waits for a whole block."""
    left_gpus: int = 0
    """Free GPUs that stay on the nodes used."""
    loss_mb_s: int = 0
    """By how much the best sets of later jobs get slower, summed over the nodes."""
    nic_distance: int = 0
    numa_nodes: int = 0


class Scale:
    """Costs in a cluster of so many levels, host included: each number of a Cost is a digit of WIDTH bits."""

    def __init__(self, levels: int) -> None:
        self._levels = levels
        counted = Cost((0,) * levels, free_gpus=(0,) * (levels - 1))
        digits = sum(len(part) if isinstance(part, tuple) else 1 for part in counted)
        units = iter([1 << WIDTH * place for place in reversed(range(digits))])
        self.unit = Cost._make(
            tuple(next(units) for _ in part) if isinstance(part, tuple) else next(units) for part in counted
        )
        """What one of each part costs."""
        self.of_domain, self.of_host = self.unit.domains[:-1], PackedCost(self.unit.domains[-1])
        """What it costs to use a domain of each level, outermost first, but for its free GPUs; and a host."""
        self.of_free_gpu = tuple(reversed(self.unit.free_gpus))
        """What each free GPU in a used domain of each level costs, outermost first."""

    def domains(self, cost: int) -> tuple[int, ...]:
        """How many domains of each level a packed cost counts."""
        counts = (cost + self.of_host // 2) >> self.of_host.bit_length() - 1  # a part may be below zero
        mask = (1 << WIDTH) - 1
        return tuple(counts >> WIDTH * level & mask for level in range(self._levels - 1, -1, -1))


def mb_s(gb_s: float) -> int:
    """A bandwidth in whole MB/s."""
    return round(gb_s * PER_GB_S)
