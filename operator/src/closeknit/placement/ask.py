"""What a job asks of its share of one node, and what a set of GPUs is worth to it."""

from typing import NamedTuple

from closeknit.api.nodetopology import Transport
from closeknit.placement.subsets import positions_of


class Ask(NamedTuple):
    """What a job asks of its share of one node."""

    gpus: int
    block: int = 1
    """Consecutive local ranks that form one tensor x context group; 1 where there are no groups inside the node."""
    joined: bool = False
    """Whether each block, or without blocks the whole share, must be joined over NVLink alone."""
    transport: Transport | None = None
    """RDMA transport between the nodes, whose NICs then count."""


class Value(NamedTuple):
    """What a set is worth to the job that takes it, in GB/s."""

    block_gb_s: float
    """Bandwidth inside the slowest block; infinite without blocks."""
    bus_gb_s: float
    """What the gang gets through this node: its rings and, where they are known, its NICs."""


ANY = Value(0.0, 0.0)


def reaches(value: Value | None, floor: Value) -> bool:
    """Whether a set is a candidate and nowhere worth less than the floor."""
    return value is not None and value.block_gb_s >= floor.block_gb_s and value.bus_gb_s >= floor.bus_gb_s


class Choice(NamedTuple):
    """The set to take. Every cost is better when lower."""

    mask: int
    loss_gb_s: tuple[float, ...]
    """By how much the best remaining set of 8, of 4 and of 2 gets slower."""
    nic_distance: int
    numa_nodes: int


def rank(choice: Choice) -> tuple[object, ...]:
    """Of choices the lowest is the one to take."""
    return (*choice[1:], positions_of(choice.mask))
