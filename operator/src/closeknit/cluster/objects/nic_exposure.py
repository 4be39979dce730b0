"""How RDMA NICs come into Pods: what a node's resources say of it, and what a Pod asks for."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from closeknit.api.names import (
    CLAIMED_PREFIX,
    EFA_RESOURCE,
    ERDMA_RESOURCE,
    FUNCTION_PREFIX,
    GKE_NETWORK_PREFIX,
    GKE_RDMA_NETWORK,
    RDMA_RESOURCE_PREFIX,
)
from closeknit.api.nodetopology import Transport
from closeknit.cluster.objects.pod_requests import Needs

_VERBS = frozenset({Transport.INFINIBAND, Transport.ROCE})
_GKE_ADDRESSES = ".IP"  # resources of addresses, which GKE asks for itself


class NicExposure(StrEnum):
    """How the NICs of a node come into Pods; of several the first, for which such a node was set up."""

    DRANET = "DRANET"
    """A claim on each NIC, which then is the Pod's alone."""
    EFA = "EFA"
    """One of the resource for each adapter."""
    GKE = "GKE"
    """One of each network's resource, and an annotation that gives the network an interface in the Pod."""
    SRIOV = "SRIOV"
    """One function of each resource of SR-IOV functions, and a network of Multus that gives it an interface."""
    SHARED = "Shared"
    """One of the resource exposes every NIC behind it."""

    @property
    def transports(self) -> frozenset[Transport]:
        """Transports of the NICs that a Pod gets by it."""
        return frozenset({Transport.EFA}) if self is NicExposure.EFA else _VERBS


def nic_exposure(resource: str) -> NicExposure | None:
    """What NICs come by, where a Pod asks for this resource; None for one that brings none. A DeviceClass is that of
    NICs: what templates ask for by the name of a DeviceClass is none of their needs. Which resources are of SR-IOV
    functions the site has said where they bear Multus' prefix."""
    if resource.startswith(CLAIMED_PREFIX):
        return NicExposure.DRANET
    if resource.startswith(FUNCTION_PREFIX):
        return NicExposure.SRIOV
    if resource == EFA_RESOURCE:
        return NicExposure.EFA
    if resource.startswith(f"{GKE_NETWORK_PREFIX}{GKE_RDMA_NETWORK}"):
        return None if resource.endswith(_GKE_ADDRESSES) else NicExposure.GKE
    if resource.startswith(RDMA_RESOURCE_PREFIX) or resource == ERDMA_RESOURCE:
        return NicExposure.SHARED
    return None


def networks(allocatable: Mapping[str, int]) -> tuple[str, ...]:
    """Names of a node's GKE networks that are RDMA NICs, sorted."""
    return tuple(
        sorted(
            resource.removeprefix(GKE_NETWORK_PREFIX)
            for resource, amount in allocatable.items()
            if amount > 0 and nic_exposure(resource) is NicExposure.GKE
        )
    )


def asks_for_nics(wanted: Needs) -> bool:
    """Whether the template itself asks for NICs: then what it says holds, and nothing is added."""
    return any(nic_exposure(name) is not None for name, _ in wanted)


def is_claimed(resource: str) -> bool:
    """Whether NICs that come by it are claimed one by one."""
    return bool(resource) and nic_exposure(resource) is NicExposure.DRANET


def claims_itself(template: Mapping[str, Any]) -> bool:
    """Whether a template claims devices itself. It is not read which: NICs by claims are then its own matter,
    for what it has claimed may be the same ones."""
    if template.get("resourceClaims"):
        return True
    return any(name.startswith(CLAIMED_PREFIX) for name in asked(template))


def asked(template: Mapping[str, Any]) -> Iterator[str]:
    """Names of what its containers ask for; of what is no such thing nothing is said here."""
    for kind in ("containers", "initContainers"):
        for container in _list(template.get(kind)):
            resources = _object(_object(container).get("resources"))
            for field in ("limits", "requests"):
                yield from map(str, _object(resources.get(field)))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _object(value: object) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def with_nics(wanted: Needs, resource: str, nics: int) -> Needs:
    """The needs of a Pod that is given so many NICs by this resource, none where it is empty; functions of them, whose
    resources the site declares, left out."""
    if not resource or is_claimed(resource) or has_functions(resource) or asks_for_nics(wanted):
        return wanted
    return tuple(sorted((*wanted, (resource, share(resource, nics)))))


def has_functions(resource: str) -> bool:
    """Whether NICs that come by it come by SR-IOV functions."""
    return bool(resource) and nic_exposure(resource) is NicExposure.SRIOV


def share(resource: str, nics: int) -> int:
    """How many of a resource bring a Pod so many NICs."""
    return nics if nic_exposure(resource) is NicExposure.EFA else 1
