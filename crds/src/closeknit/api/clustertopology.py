"""ClusterTopology: the levels of the network between nodes. The object called `default` is used."""

from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from closeknit.api.cluster_summary import ClusterSummary
from closeknit.api.names import (
    GPU_MEMORY_RESOURCE,
    GPU_RESOURCE,
    HOST_LEVEL,
    MIG_RESOURCE_PREFIX,
    NVLINK_DOMAIN_LEVEL,
    SHARED_GPU_RESOURCE,
)
from closeknit.api.wire import Condition, FieldError, Label, Wire

MAX_LEVELS = 15  # host, always the innermost, is the sixteenth; a printed list a person can read
RESERVED_LEVELS = (HOST_LEVEL, NVLINK_DOMAIN_LEVEL)
RESERVED_LEVEL_MESSAGE = f"{HOST_LEVEL} and {NVLINK_DOMAIN_LEVEL} are levels that closeknit adds itself; leave them out"
EQUAL_LEVELS_MESSAGE = "level names must differ"

LevelName = Annotated[str, StringConstraints(max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
MAX_SRIOV_NETWORKS = 32  # NICs of one node: twice what machines of today have
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = rf"{_LABEL}([.]{_LABEL})*"
EQUAL_RESOURCES_MESSAGE = "resources must differ"
EQUAL_NETWORKS_MESSAGE = "networks must differ, for each names its one resource"
GPU_RESOURCES = (GPU_RESOURCE, SHARED_GPU_RESOURCE, GPU_MEMORY_RESOURCE)
GPUS_DECLARED_MESSAGE = "resource is one of GPUs; name one of SR-IOV functions"

BandwidthGbS = Annotated[float, Field(ge=0, le=100_000)]


class Level(Wire):
    """One level: nodes with equal values of nodeLabel, and of all levels outside it, are one domain."""

    name: LevelName
    """Name of the level, as jobs use it, for example rack. host and nvlink-domain are taken."""
    node_label: Annotated[str, StringConstraints(max_length=317)]
    """Key of the node label whose value names the domain."""


class TrafficClass(Wire):
    """Marking of one class of RDMA traffic."""

    dscp: Annotated[int, Field(ge=0, le=63)] | None = None
    """Differentiated-services code point (RoCE)."""
    service_level: Annotated[int, Field(ge=0, le=15)] | None = None
    """Service level (InfiniBand)."""


class SriovNetwork(Wire):
    """A resource of SR-IOV functions, and the network by which Multus gives a Pod the interface of one."""

    resource: Annotated[
        str, StringConstraints(max_length=253, pattern=rf"^{_NAME}/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
    ]
    """What the SR-IOV device plugin calls the functions of one NIC of each node, for example nvidia.com/rail0."""
    network: Annotated[str, StringConstraints(max_length=317, pattern=rf"^{_LABEL}/{_NAME}$")]
    """Namespace and name of the NetworkAttachmentDefinition that names this resource, for example default/rail0."""


class Fabric(Wire):
    """What only the site knows of its network."""

    rail_isolated: bool = False
    """Whether rails are joined nowhere: all nodes of a job then use the same local GPU indexes. Default false."""
    ecmp: bool = False
    """Whether the fabric spreads flows by hashing, so that one connection needs several queue pairs. Default false."""
    qps_per_connection: Annotated[int, Field(ge=1, le=128)] | None = None
    """Queue pairs per connection on an ECMP fabric."""
    traffic_classes: Annotated[dict[str, TrafficClass], Field(max_length=16)] = {}
    """Named traffic classes."""
    sriov_networks: Annotated[list[SriovNetwork], Field(max_length=MAX_SRIOV_NETWORKS)] = []
    """Networks of SR-IOV functions, of different resources: a Pod on several nodes gets one function of each that its
    node has."""
    level_bandwidth_gb_s: Annotated[dict[str, BandwidthGbS], Field(alias="levelBandwidthGBps", max_length=16)] = {}
    """Bandwidth per node and direction between domains of a level, in GB/s."""
    shared_trays: bool = False
    """Whether a job that has NVLink between its nodes may leave less than half of a node's GPUs to others. Their Pods
    then get no NVLink beyond the node, and never start if they claim it. Default false: it takes whole nodes."""


class ClusterTopologySpec(Wire):
    """Levels and fabric."""

    levels: Annotated[list[Level], Field(max_length=MAX_LEVELS)] = []
    """Levels, outermost first. host is always the innermost and not listed."""
    fabric: Fabric = Fabric()
    """What only the site knows of its network."""

    @model_validator(mode="after")
    def _level_names_are_free(self) -> "ClusterTopologySpec":
        """The CEL rules of the CRD, said again for files that no API server has seen."""
        names = [level.name for level in self.levels]
        for index, name in enumerate(names):
            if name in RESERVED_LEVELS:
                raise FieldError(f"levels[{index}].name", RESERVED_LEVEL_MESSAGE)
        if len(set(names)) < len(names):
            raise FieldError("levels", EQUAL_LEVELS_MESSAGE)
        return self

    @model_validator(mode="after")
    def _resources_are_of_functions(self) -> "ClusterTopologySpec":
        resources = [network.resource for network in self.fabric.sriov_networks]
        for index, resource in enumerate(resources):
            if resource in GPU_RESOURCES or resource.startswith(MIG_RESOURCE_PREFIX):
                raise FieldError(f"fabric.sriovNetworks[{index}].resource", GPUS_DECLARED_MESSAGE)
        if len(set(resources)) < len(resources):
            raise FieldError("fabric.sriovNetworks", EQUAL_RESOURCES_MESSAGE)
        networks = {network.network for network in self.fabric.sriov_networks}
        if len(networks) < len(resources):
            raise FieldError("fabric.sriovNetworks", EQUAL_NETWORKS_MESSAGE)
        return self


class LevelStatus(Wire):
    """What was found at one level."""

    name: Label
    """Name of the level."""
    domains: Annotated[int, Field(ge=0)]
    """Number of domains that have nodes with GPUs."""
    gpus: Annotated[int, Field(ge=0)]
    """GPUs in all of them."""
    free_gpus: Annotated[int, Field(ge=0)]
    """Those of them that nobody holds, that are well, and whose node is not excluded."""


class ClusterTopologyStatus(Wire):
    """What was found; the operator writes it, at most twice a minute."""

    conditions: Annotated[list[Condition], Field(max_length=16)] = []
    """Ready, which is False where something in the spec does nothing or cannot be meant, AgentsReport, and GPUsOffered,
    which is False where neither a device plugin nor DRA gives Pods the GPUs of some node."""
    levels: Annotated[list[LevelStatus], Field(max_length=MAX_LEVELS + 2)] = []
    """Domains, GPUs and free GPUs of each level that is in use, found or given, outermost first; host is the last."""
    summary: ClusterSummary | None = None
    """The cluster at a glance, in numbers."""
