"""Machines of clouds whose fabric wants more of NCCL than its transport tells, known by the labels of their Nodes."""

import re
from collections.abc import Mapping
from enum import Enum

INSTANCE_TYPE = "node.kubernetes.io/instance-type"  # of Kubernetes' cloud providers


class Platform(Enum):
    """Such machines; the value is what people call them."""

    AZURE_ND = "Azure ND"
    GCP_TCPX = "Google A3 High or Edge (GPUDirect-TCPX)"
    GCP_TCPXO = "Google A3 Mega (GPUDirect-TCPXO)"
    GCP_GIB = "Google A3 Ultra, and A4, A4X and later (gIB)"

    @property
    def has_own_script(self) -> bool:
        """Whether its vendor's script sets NCCL up inside the container, in words that change with its releases."""
        return self is not Platform.AZURE_ND


_AZURE_ND = "standard_nd"
# Google names a machine by its family, its class and its GPUs, and some by what else they are: a3-highgpu-8g,
# a4x-highgpu-4g-nolssd, a4x-maxgpu-4g-metal (cluster-autoscaler's list of GCE machine types).
_GOOGLE = re.compile(r"a(\d{1,3})x?-([a-z]+)gpu-\d")
# What joins A3 machines depends on their class; GPUDirect-TCPX and TCPXO ended with them. From A4 on all have RDMA
# NICs, which Google's NCCL plugin gIB drives (AI Hypercomputer's tables of machine types; GKE's GPUDirectStrategy).
_A3 = {
    "high": Platform.GCP_TCPX,
    "edge": Platform.GCP_TCPX,
    "mega": Platform.GCP_TCPXO,
    "ultra": Platform.GCP_GIB,
}


def platform(labels: Mapping[str, str]) -> Platform | None:
    """The platform of a node; None for all others. Case means nothing: Azure takes names in any."""
    kind = labels.get(INSTANCE_TYPE, "").lower()
    if kind.startswith(_AZURE_ND):
        return Platform.AZURE_ND
    google = _GOOGLE.match(kind)
    if google is None:
        return None
    family = int(google[1])
    return _A3.get(google[2]) if family == 3 else Platform.GCP_GIB if family > 3 else None
