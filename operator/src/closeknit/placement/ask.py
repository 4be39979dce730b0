"""What a job asks of its share of one node, and what a set of GPUs is worth to it."""

from typing import NamedTuple

from closeknit.api.nodetopology import Transport


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
