"""What NCCL plans for an all-reduce that NVSwitches sum up themselves (NVLS), which no prediction counts.

Each GPU is the head of one channel, on which every GPU sends its part to the switches once and the head twice: a GPU's
links carry one speed for each GPU, and one more. NCCL takes the fastest of its ring speeds that they have room for:

    GPUs    2    3    4    5    6    7    8
    Hopper  60   60   60   60   50   40   40 GB/s a channel, of eighteen links with 20.6 GB/s each

What it plans is a bound and no promise: whether the driver gives multicast memory CUDA alone can tell, and of the
recorded machines none gave it. So a prediction is what rings reach, and this is told beside it.
"""

from collections.abc import Sequence

from closeknit.machine.graph import Machine
from closeknit.placement.allreduce import constants
from closeknit.placement.allreduce.paths import compute_capability

LEAST_SM = 90
# Of what channels carry (NCCL's graph/tuning.cc).
EFFICIENCY, EFFICIENCY_SM100 = 0.85, 0.74


def planned(machine: Machine, positions: Sequence[int]) -> float | None:
    """Bus bandwidth that NCCL plans with NVLS for these GPUs, in GB/s; None for machines without NVLS, with a link
    down, or with switches that join several nodes: for those the rule is not known."""
    sm, links = compute_capability(machine, positions), set(machine.switch_links)
    if sm is None or sm < LEAST_SM or not machine.switched or len(links) > 1 or machine.nvlink_domain is not None:
        return None
    return _planned(sm, links.pop() * constants.nvlink_gb_s(sm), len(positions))


def _planned(sm: int, room_gb_s: float, gpus: int) -> float | None:
    """`room_gb_s` is what the links of one GPU carry."""
    able = (speed for speed in constants.ring_speeds(sm) if (gpus + 1) * speed <= room_gb_s)
    speed = next(able, None)
    if gpus < 2 or speed is None:
        return None
    efficiency = EFFICIENCY_SM100 if sm >= 100 else EFFICIENCY
    return 2 * gpus * speed * efficiency * (gpus - 1) / gpus
