"""Free GPUs without CPU on their node: a job that leaves some strands them for long.

With each GPU go as many CPUs as the node has for one (cluster/node/cpu_share.py). What a Pod takes beyond that is
lacking beside the GPUs that it leaves.

    8 GPUs, 9 CPUs each, 2 free, 30 CPUs left   a Pod of 1 GPU and 8 CPUs leaves 1 GPU and 22 CPUs: none is stranded
                                                a Pod of 1 GPU and 24 CPUs leaves 1 GPU and 6 CPUs: one more is
"""

from typing import NamedTuple

from closeknit.cluster.objects.pod_requests import CPU, Amounts, Needs

_MILLI = 1000  # amounts of CPU are in thousandths


class CpuCover(NamedTuple):
    """Number of a node's free GPUs with CPUs."""

    now: int
    then: int
    """After a Pod takes its CPUs; at most the remaining GPUs."""

    def stranded(self, free: int, gpus: int) -> int:
        """Number of further free GPUs without CPU once a Pod takes so many; below zero for fewer."""
        return max(0, free - gpus - self.then) - (free - self.now)


def cpu_milli(needs: Needs) -> int:
    """Thousandths of a CPU that a Pod asks for."""
    return next((amount for resource, amount in needs if resource == CPU), 0)


def cpu_cover(spare: Amounts | None, asked_milli: int, cpus_per_gpu: int, free: int) -> CpuCover | None:
    """The cover of a node with so many free GPUs and room for a Pod; None where the CPUs are enough for all, before and
    after, or unknown."""
    if spare is None or not (asked_milli and cpus_per_gpu and free):
        return None
    left, of_one = spare.get(CPU, 0), cpus_per_gpu * _MILLI
    found = CpuCover(min(free, left // of_one), min(free - 1, (left - asked_milli) // of_one))
    return None if found == (free, free - 1) else found
