"""What a job asks of its share of one node, and what a set of GPUs is worth to it."""

from enum import IntEnum
from typing import NamedTuple

from closeknit.api.nodetopology import Transport
from closeknit.placement.allreduce.bandwidth import EVERY_NIC, NicAccess
from closeknit.placement.gpusets.masks import positions_of


class SetCriteria(NamedTuple):
    """What a job asks of its share of one node."""

    gpus: int
    block: int = 1
    """Consecutive local ranks that form one tensor x context group; 1 where there are no groups inside the node."""
    joined: bool = False
    """Whether each block, or without blocks the whole share, must be joined over NVLink alone."""
    transport: Transport | None = None
    """RDMA transport between the nodes, whose NICs then count."""
    nics: NicAccess = EVERY_NIC
    """Which of those it can be given."""
    alone: bool = False
    """Whether it is all that the job asks for, so that nothing but this node limits it."""


class Value(NamedTuple):
    """What a set is worth to the job that takes it, in GB/s."""

    block_gb_s: float
    """Bandwidth inside the slowest block; infinite without blocks."""
    bus_gb_s: float
    """What the gang gets through this node: its rings and, where they are known, its NICs."""
    tree_gb_s: float = 0.0
    """What no way of using its NVLinks can exceed (tree_bound.py); 0 where that does not count."""


ANY = Value(0.0, 0.0)


class Measure(IntEnum):
    """A part of a Value, by its place in it."""

    BLOCK = 0
    BUS = 1
    TREE = 2


def reaches(value: Value | None, floor: Value) -> bool:
    """Whether a set is a candidate and nowhere worth less than the floor."""
    return (
        value is not None
        and value.block_gb_s >= floor.block_gb_s
        and value.bus_gb_s >= floor.bus_gb_s
        and value.tree_gb_s >= floor.tree_gb_s
    )


def unblocked(floor: Value, by: Measure) -> tuple[Value, Measure]:
    """The floor and the measure of a question about sets without blocks: their slowest block is as fast as any."""
    if floor.block_gb_s != ANY.block_gb_s:
        floor = floor._replace(block_gb_s=ANY.block_gb_s)
    return floor, Measure.BUS if by is Measure.BLOCK else by


class SetChoice(NamedTuple):
    """The set to take. Every cost is better when lower."""

    mask: int
    loss_gb_s: float
    """By how much the best sets of later jobs get slower: among the GPUs left free, and among those left of the machine
    once the jobs that hold the rest have gone."""
    nic_distance: int
    numa_nodes: int
    torn: int = 0
    """How many expert groups lie on several NVLink islands."""
    is_cut: bool = False
    """Whether a search for it ended at its budget."""


def rank(choice: SetChoice) -> tuple[object, ...]:
    """The order of choices: the fewest torn expert groups first, then the least loss for later jobs, the nearest NICs,
    the fewest NUMA nodes, and the lowest GPUs. Two searches rest on that order: best_first.py begins with the least
    loss, and exhaustive.py asks for torn groups among sets that it has ranked before."""
    return (choice.torn, choice.loss_gb_s, choice.nic_distance, choice.numa_nodes, positions_of(choice.mask))
