"""The links between a cluster's nodes, as placement needs them."""

from typing import NamedTuple, Self

from immutables import Map

from closeknit.api.names import NVLINK_DOMAIN_LEVEL
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.cluster import Cluster
from closeknit.placement.candidates.offer import Joint
from closeknit.placement.values.request import Request


class Interconnect(NamedTuple):
    """All inputs of a search beside the trees, for one version of a cluster, so that answers are kept by it."""

    levels: tuple[str, ...]
    level_bandwidth_gb_s: Map[str, float]
    rail_isolated: bool
    imex_with: frozenset[Binding]
    """Bindings with which Pods can also have an IMEX channel, for NVLink between the nodes of a domain."""
    shared_trays: bool = False
    """Whether a gang with channels may leave some GPUs of its nodes to others."""

    @classmethod
    def of(cls, cluster: Cluster) -> Self:
        """The interconnect of a cluster."""
        fabric = cluster.fabric
        return cls(
            cluster.levels,
            Map(fabric.level_bandwidth_gb_s),
            fabric.rail_isolated,
            cluster.imex_with,
            fabric.shared_trays,
        )

    @property
    def joint(self) -> Joint:
        """How NVLink joins the nodes of a gang that has channels."""
        return Joint.MOST if self.shared_trays else Joint.WHOLE

    def has_channels(self, request: Request) -> bool:
        """Whether a gang may have NVLink between its nodes."""
        return bool(self.imex_with) and NVLINK_DOMAIN_LEVEL in self.levels and request.leaves_channels

    def inside_domain(self, level: str | None) -> str:
        """The level that keeps a gang in one NVLink domain, too, if it lies in one domain of it and of `level`."""
        return max((NVLINK_DOMAIN_LEVEL, level or NVLINK_DOMAIN_LEVEL), key=self.levels.index)
