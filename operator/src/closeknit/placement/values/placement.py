"""The answer of placement: a Placement, or a NoFit that says why not. Both are values."""

from dataclasses import dataclass
from enum import StrEnum

from closeknit.api.reasons import PendingReason
from closeknit.api.trainingjob_status import Binding


class TransportChoice(StrEnum):
    """How ranks on different nodes talk."""

    NONE = "None"  # one node
    RDMA = "RDMA"
    SOCKETS = "Sockets"


@dataclass(frozen=True, slots=True)
class Share:
    """The gang's share of one node."""

    node: str
    gpus: tuple[int, ...]
    """NVML indexes in local-rank order, which is PCI-bus order: what CUDA shows inside the container."""
    uuids: tuple[str, ...]
    """UUIDs of `gpus`, in the same order; empty strings where the machine does not tell."""
    first_rank: int
    """Global rank of the first GPU; ranks are contiguous."""
    binding: Binding
    nics: tuple[str, ...]
    """RDMA NICs that these ranks use, as name:port, sorted; empty without RDMA."""
    topology_generation: int
    rdma_resource: str = ""
    """The node's resource by which its Pod gets them; empty without RDMA."""
    mig_device: str = ""
    """UUID of the MIG device that it has of its one GPU, and the one in `uuids`; empty where it has whole GPUs."""

    @property
    def ranks(self) -> range:
        """Global ranks of this share."""
        return range(self.first_rank, self.first_rank + len(self.gpus))


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a whole gang goes, shares in rank order."""

    shares: tuple[Share, ...]
    levels: tuple[tuple[str, int], ...]
    """How many domains of each level it spans, outermost first, without host."""
    transport: TransportChoice
    predicted_bus_bandwidth_gb_s: float | None
    """All-reduce of 1 GiB; None where the network between nodes is unknown."""
    ideal_bus_bandwidth_gb_s: float | None
    """The best that an empty, healthy copy of this cluster could give; None where unknown."""
    limited_by: str
    ended_at_budget: bool = False
    """Whether a search ended at its budget of steps, so that this is the best found and may not be the best."""
    spares: tuple[Share, ...] = ()
    """Nodes beside the gang that may take the place of a lost one; their ranks mean nothing."""


@dataclass(frozen=True, slots=True)
class NoFit:
    """Why a gang cannot be placed now. The message says what was asked, what was found, what to do."""

    reason: PendingReason
    message: str
