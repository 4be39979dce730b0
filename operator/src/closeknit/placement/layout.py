"""Where a gang would lie: its nodes and GPUs, before ranks and NICs are written down."""

from dataclasses import dataclass
from typing import NamedTuple

from closeknit.api.nodetopology import Transport
from closeknit.api.trainingjob_status import Binding
from closeknit.placement.offer import Offer
from closeknit.placement.prediction import Prediction
from closeknit.placement.sums import Pick


class Part(NamedTuple):
    """The share of one node."""

    node: str
    offer: Offer
    mask: int
    binding: Binding


class Merit(NamedTuple):
    """Smaller is better, among layouts of one way."""

    is_far: bool
    """Whether its shares are unequal, or need many hosts."""
    domains: tuple[int, ...]
    is_unequal: bool
    minus_block_gb_s: float
    minus_bus_gb_s: float
    cost: int
    picks: tuple[Pick, ...]
    rail: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """A gang's nodes and GPUs, by node name."""

    parts: tuple[Part, ...]
    transport: Transport | None
    """RDMA transport between nodes; None on one node, and for sockets."""
    counts: tuple[int, ...]
    """How many domains of each level it uses, host last."""
    prediction: Prediction
    merit: Merit | None
    """None for one that was not searched for."""
