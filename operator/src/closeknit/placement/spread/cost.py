"""What a spread of a gang costs, in one integer that compares, adds up and multiplies as the list of its parts does."""

from typing import NamedTuple

WIDTH = 48  # bits of one part: 65,536 nodes that each lose 1,000 GB/s, in MB/s, are 36; one is for the sign
PER_GB_S = 1000  # losses are whole MB/s, so that sums do not depend on their order


class Cost(NamedTuple):
    """The parts, the most important first. Every one is better when lower."""

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
    """Of the domains that are used, outermost first, without hosts. The innermost weighs most: filling a rack up keeps
    others whole for gangs of a rack, and hardly any gang waits for a whole block."""
    left_gpus: int = 0
    """Free GPUs that stay on the nodes used."""
    loss_mb_s: int = 0
    """By how much the best sets of later jobs get slower, summed over the nodes."""
    nic_distance: int = 0
    numa_nodes: int = 0


class Scale:
    """Costs in a cluster of so many levels, host included: parts are digits of WIDTH bits."""

    def __init__(self, levels: int) -> None:
        self._levels = levels
        self._below = WIDTH * (4 + levels - 1 + 4)  # bits of all parts but the domains
        self._vacancy = WIDTH * (4 + levels - 1)
        nothing = (0,) * (levels - 1)
        steps = range(levels - 1)
        self.of_domain = tuple(
            self.packed(Cost((*(int(step == level) for step in steps), 0), free_gpus=nothing)) for level in steps
        )
        """What it costs to use a domain of each level, but for its free GPUs."""
        self.of_free_gpu = tuple(
            self.packed(Cost((*nothing, 0), free_gpus=tuple(int(step == level) for step in steps))) for level in steps
        )
        """What each free GPU in a used domain of each level costs."""
        self.of_host = self.packed(Cost((*nothing, 1), free_gpus=nothing))

    def packed(self, cost: Cost) -> int:
        """A cost as one integer."""
        whole = 0
        for part in (
            *cost.domains,
            cost.torn,
            cost.stranded,
            cost.broken,
            cost.vacancy,
            *reversed(cost.free_gpus),
            cost.left_gpus,
            cost.loss_mb_s,
            cost.nic_distance,
            cost.numa_nodes,
        ):
            whole = (whole << WIDTH) + part
        return whole

    def of_share(
        self,
        torn: int,
        stranded: int,
        broken: int,
        vacancy: int,
        left_gpus: int,
        loss_gb_s: float,
        nic_distance: int,
        numa_nodes: int,
    ) -> int:
        """What a share of one node costs by itself."""
        outer = (((torn << WIDTH) + stranded << WIDTH) + broken << WIDTH) + vacancy << self._vacancy
        inner = ((left_gpus << WIDTH) + mb_s(loss_gb_s) << WIDTH) + nic_distance << WIDTH
        return self.of_host + outer + inner + numa_nodes

    def domains(self, packed: int) -> tuple[int, ...]:
        """How many domains of each level a cost counts."""
        counts = (packed + (1 << (self._below - 1))) >> self._below  # a part may be below zero
        mask = (1 << WIDTH) - 1
        return tuple(counts >> WIDTH * level & mask for level in range(self._levels - 1, -1, -1))


def mb_s(gb_s: float) -> int:
    """A bandwidth in whole MB/s."""
    return round(gb_s * PER_GB_S)
