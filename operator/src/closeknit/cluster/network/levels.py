"""The levels of the network between nodes, and the domain of each node at each level.

A domain is a path from the outermost level, so that rack 1 of block a and rack 1 of block b are two domains:

    levels   block   rack     nvlink-domain   host
    gpu-07   b1      b1/r2    b1/r2/c0ffee.1  b1/r2/c0ffee.1/gpu-07
    gpu-08   b1      b1/r2    None            b1/r2/gpu-08
    gpu-09   b1      None     None            b1/gpu-09

nvlink-domain is the innermost level, whatever anybody says of it: of an NVLink domain that straddles racks the part in
each rack is a domain. So what one node says of its NVLink moves no other node.

Levels come from the ClusterTopology called `default`, else from the labels that others have put on the nodes; which
they are is counted in census.py.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from closeknit.api.names import HOST_LEVEL, NVLINK_DOMAIN_LEVEL

GPU_CLIQUE_LABEL = "nvidia.com/gpu.clique"  # GPU feature discovery: <cluster UUID>.<clique>, as Machine.nvlink_domain


@dataclass(frozen=True, slots=True)
class Scheme:
    """Labels that one project or cloud puts on nodes."""

    levels: tuple[tuple[str, str], ...]
    """(level, label key), outermost first."""
    nvlink: tuple[str, ...] = ()
    """Keys of its labels for multi-node NVLink, the widest first."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of all its labels."""
        return (*(key for _, key in self.levels), *self.nvlink)


# Sources: topograph docs/reference/node-labels.md (tier 0 is the switch next to the nodes; a sub-domain is a part of an
# accelerator domain) and its older label set; CoreWeave, InfiniBand and RoCE labels; Nebius, topology-aware scheduling
# for GPU workloads (tier 0 and the instance group are the NVLink domain, tier 1 is next to the nodes); for
# Crusoe's, topograph's page of that provider. GCP's gce-topology-host and OCI's rdma.host_id name the machine below one
# node: as levels they would say what `host` says. An admin who names switches himself is believed before a cloud.
SCHEMES = (
    Scheme(
        tuple((f"tier-{tier}", f"fabric.topograph.run/tier-{tier}") for tier in range(7, -1, -1)),
        ("accelerator.topograph.run/domain", "accelerator.topograph.run/sub-domain"),
    ),
    Scheme(
        (
            ("core", "network.topology.nvidia.com/core"),
            ("spine", "network.topology.nvidia.com/spine"),
            ("leaf", "network.topology.nvidia.com/leaf"),
        ),
        ("network.topology.nvidia.com/accelerator",),
    ),
    Scheme(
        (
            ("layer-1", "topology.k8s.aws/network-node-layer-1"),
            ("layer-2", "topology.k8s.aws/network-node-layer-2"),
            ("layer-3", "topology.k8s.aws/network-node-layer-3"),
        ),
        ("topology.k8s.aws/ultraserver-id",),
    ),
    Scheme(
        (("block", "cloud.google.com/gce-topology-block"), ("subblock", "cloud.google.com/gce-topology-subblock")),
    ),
    Scheme(
        (
            ("hpc-island", "oci.oraclecloud.com/rdma.hpc_island_id"),
            ("network-block", "oci.oraclecloud.com/rdma.network_block_id"),
            ("local-block", "oci.oraclecloud.com/rdma.local_block_id"),
        ),
        ("oci.oraclecloud.com/host.gpu_memory_fabric_id",),
    ),
    Scheme(
        (
            ("fabric", "backend.coreweave.cloud/fabric"),
            ("superpod", "backend.coreweave.cloud/superpod"),
            ("leafgroup", "backend.coreweave.cloud/leafgroup"),
        ),
        ("ds.coreweave.com/nvlink.domain",),
    ),
    Scheme(
        (
            ("gpu-cluster", "topology.nebius.com/gpu-cluster-id"),
            ("tier-2", "topology.nebius.com/tier-2"),
            ("tier-1", "topology.nebius.com/tier-1"),
        ),
        ("topology.nebius.com/tier-0", "topology.nebius.com/nvl-instance-group-id"),
    ),
    Scheme((("ib-partition", "crusoe.ai/ib.partition.id"), ("pod", "crusoe.ai/pod.id"))),
)


class Place(NamedTuple):
    """The inputs of levels: one node's labels and its machine's multi-node NVLink."""

    labels: Mapping[str, str]
    nvlink_domain: str | None


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of a cluster, outermost first, and how a node's domains are read."""

    labelled: tuple[tuple[str, str], ...] = ()
    """(level, label key) of the levels outside nvlink-domain."""
    has_nvlink_domain: bool = False
    nvlink_labels: tuple[str, ...] = ()
    """Labels of the scheme that name the NVLink domain where GPU feature discovery does not, the widest first."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the levels, outermost first; the last is host."""
        nvlink = (NVLINK_DOMAIN_LEVEL,) if self.has_nvlink_domain else ()
        return (
            *(level for level, _ in self.labelled),
            *nvlink,
            HOST_LEVEL,
        )

    def domains(self, name: str, place: Place) -> tuple[str | None, ...]:
        """The node's domain at each level; None where it lacks that level's label or one outside it.

        A machine without multi-node NVLink has no domain at that level.
        """
        found: list[str | None] = []
        parts: list[str] = []
        is_broken = False
        for _, key in self.labelled:
            is_broken = _descend(place.labels.get(key), parts, found, is_broken=is_broken)
        if self.has_nvlink_domain:
            _descend(nvlink_domain(place, self.nvlink_labels), parts, found, is_broken=is_broken)
        found.append("/".join((*parts, name)))
        return tuple(found)


def _descend(value: str | None, parts: list[str], found: list[str | None], *, is_broken: bool) -> bool:
    """Adds one level to the path, and returns whether the path is broken from here on."""
    if is_broken or not value:
        found.append(None)
        return True
    parts.append(value)
    found.append("/".join(parts))
    return False


def nvlink_domain(place: Place, labels: Iterable[str]) -> str | None:
    """The node's multi-node NVLink domain: NVIDIA's label, which names one exactly, else all other sources together.

    Labels of clouds and tools name a rack, which its owner may have split, and the agent what its own GPUs are joined
    in: two nodes are in one domain where all of it is equal. A name that goes on from the one before it stands for
    both, as topograph's nvl1.rack01 in nvl1, and the agent's cluster UUID with its clique.
    """
    if clique := place.labels.get(GPU_CLIQUE_LABEL):
        return clique
    named: list[str] = []
    for name in (*(place.labels.get(label) for label in labels), place.nvlink_domain):
        if name and named and (name == named[-1] or name.startswith(f"{named[-1]}.")):
            named[-1] = name
        elif name:
            named.append(name)
    return "/".join(named) or None
