"""How RDMA NICs come into Pods: what a node's resources say of it, and what a Pod asks for."""

from collections.abc import Mapping
from enum import StrEnum

from closeknit.api.names import (
    EFA_RESOURCE,
    ERDMA_RESOURCE,
    GKE_NETWORK_PREFIX,
    GKE_RDMA_NETWORK,
    RDMA_RESOURCE_PREFIX,
)
from closeknit.api.nodetopology import Transport
from closeknit.cluster.requests import Needs

_VERBS = frozenset({Transport.INFINIBAND, Transport.ROCE})
_GKE_ADDRESSES = ".IP"  # resources of addresses, which GKE asks for itself


class Exposure(StrEnum):
    """How the NICs of a node come into Pods; of several the first, for which such a node was set up."""

    EFA = "EFA"
    """One of the resource for each adapter."""
    GKE = "GKE"
    """One of each network's resource, and an annotation that gives the network an interface in the Pod."""
    SHARED = "Shared"
    """One of the resource exposes every NIC behind it."""

    @property
    def transports(self) -> frozenset[Transport]:
        """Transports of the NICs that a Pod gets by it."""
        return frozenset({Transport.EFA}) if self is Exposure.EFA else _VERBS


def exposure(resource: str) -> Exposure | None:
    """What NICs come by, where a Pod asks for this resource; None for one that brings none."""
    if resource == EFA_RESOURCE:
        return Exposure.EFA
    if resource.startswith(f"{GKE_NETWORK_PREFIX}{GKE_RDMA_NETWORK}"):
        return None if resource.endswith(_GKE_ADDRESSES) else Exposure.GKE
    if resource.startswith(RDMA_RESOURCE_PREFIX) or resource == ERDMA_RESOURCE:
        return Exposure.SHARED
    return None


def networks(allocatable: Mapping[str, int]) -> tuple[str, ...]:
    """Names of a node's GKE networks that are RDMA NICs, sorted."""
    return tuple(
        sorted(
            resource.removeprefix(GKE_NETWORK_PREFIX)
            for resource, amount in allocatable.items()
            if amount > 0 and exposure(resource) is Exposure.GKE
        )
    )


def asks_for_nics(wanted: Needs) -> bool:
    """Whether the template itself asks for NICs: then what it says holds, and nothing is added."""
    return any(exposure(name) is not None for name, _ in wanted)


def with_nics(wanted: Needs, resource: str, nics: int) -> Needs:
    """The needs of a Pod that is given so many NICs by this resource, none where it is empty."""
    if not resource or asks_for_nics(wanted):
        return wanted
    return tuple(sorted((*wanted, (resource, share(resource, nics)))))


def share(resource: str, nics: int) -> int:
    """How many of a resource bring a Pod so many NICs."""
    return nics if exposure(resource) is Exposure.EFA else 1
