"""Machines of clouds whose fabric wants more of NCCL than its transport tells, known by the labels of their Nodes."""

from collections.abc import Mapping
from enum import Enum

INSTANCE_TYPE = "node.kubernetes.io/instance-type"  # of Kubernetes' cloud providers


class Platform(Enum):
    """Such machines; the value is what people call them."""

    AZURE_ND = "Azure ND"
    GCP_TCPX = "Google A3 High (GPUDirect-TCPX)"
    GCP_TCPXO = "Google A3 Mega (GPUDirect-TCPXO)"
    GCP_GIB = "Google A3 Ultra, A4 or A4X (gIB)"

    @property
    def has_own_script(self) -> bool:
        """Whether its vendor's script sets NCCL up inside the container, in words that change with its releases."""
        return self is not Platform.AZURE_ND


# Beginnings of the names of instance types; no two of them begin alike.
_FAMILIES = {
    "Standard_ND": Platform.AZURE_ND,
    "a3-highgpu-": Platform.GCP_TCPX,
    "a3-megagpu-": Platform.GCP_TCPXO,
    "a3-ultragpu-": Platform.GCP_GIB,
    "a4-highgpu-": Platform.GCP_GIB,
    "a4x-highgpu-": Platform.GCP_GIB,
}


def platform(labels: Mapping[str, str]) -> Platform | None:
    """The platform of a node; None for all others."""
    kind = labels.get(INSTANCE_TYPE, "")
    return next((found for family, found in _FAMILIES.items() if kind.startswith(family)), None)
