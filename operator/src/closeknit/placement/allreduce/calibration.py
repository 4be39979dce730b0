"""What all-reduces reach of the rings that NCCL plans: two numbers for each architecture that was measured.

Rings of few steps fall short of their plan, whichever GPUs they join. On Hopper a ring of n GPUs misses
PAIR_SHORTFALL x (2/n)^DECLINE of it. Both numbers come from two recorded sets alone, GPUs 0 1 and GPUs 0 1 2 3 of an
HGX H200 (326.21 and 353.9 of 360 GB/s); every other set that was ever recorded is within 2% of what they say
(tests/unit/placement/gpusets/test_recorded.py). Of other architectures, and of rings over PCIe, nothing was measured,
so that nothing is taken off their plan.
"""

import math

from closeknit.placement.allreduce.paths import PathType

PAIR_SHORTFALL, DECLINE = 0.0939, 2.47
HOPPER_SM = range(90, 100)


def reached(planned_gb_s: float, worst: PathType | None, sm: int | None, gpus: int) -> float:
    """Bus bandwidth of an all-reduce of 1 GiB among so many GPUs, in GB/s, of what their rings are planned with.

    For equal GPUs and architecture it never orders two plans over NVLink otherwise than they are. A tenth of a GB/s is
    as far as it goes, so that powers that differ in their last bit between machines do not show.
    """
    if worst is None or worst > PathType.NVB or sm not in HOPPER_SM:
        return planned_gb_s
    return round(planned_gb_s * (1 - PAIR_SHORTFALL * math.pow(2 / gpus, DECLINE)), 1)
