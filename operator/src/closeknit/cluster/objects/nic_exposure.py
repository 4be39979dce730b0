"""How RDMA NICs come into Pods: by a node's resources and a Pod's requests."""

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
    """How the NICs of a node come into Pods; the first of several, because such a node was set up for it."""

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
        """Transports of such NICs in a Pod."""
        return frozenset({Transport.EFA}) if self is NicExposure.EFA else _VERBS


def nic_exposure(resource: str) -> NicExposure | None:
    """The way of NICs for this requested resource; None for one without NICs. A DeviceClass is one of NICs: template
    requests by a DeviceClass' name are not among their needs. The site declares which resources are SR-IOV functions,
    if they bear Multus' prefix."""
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
    """Whether the template itself asks for NICs: then it counts, and nothing is added."""
    return any(nic_exposure(name) is not None for name, _ in wanted)


def is_claimed(resource: str) -> bool:
    """Whether claims bring such NICs, one by one."""
    return bool(resource) and nic_exposure(resource) is NicExposure.DRANET


def claims_itself(template: Mapping[str, Any]) -> bool:
    """Whether a template claims devices itself. It is not read which: NICs by claims are then its own matter,
    for what it has claimed may be the same ones."""
    if template.get("resourceClaims"):
        return True
    return any(name.startswith(CLAIMED_PREFIX) for name in asked(template))


def asked(template: Mapping[str, Any]) -> Iterator[str]:
    """Names of its containers' requests; entries of another shape are skipped."""
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
    """The needs of a Pod with so many NICs of this resource, none if empty; without functions, whose resources the site
    declares."""
    if not resource or is_claimed(resource) or has_functions(resource) or asks_for_nics(wanted):
        return wanted
    return tuple(sorted((*wanted, (resource, share(resource, nics)))))


def has_functions(resource: str) -> bool:
    """Whether SR-IOV functions bring such NICs."""
    return bool(resource) and nic_exposure(resource) is NicExposure.SRIOV


def share(resource: str, nics: int) -> int:
    """Number of a resource that brings a Pod so many NICs."""
    return nics if nic_exposure(resource) is NicExposure.EFA else 1
