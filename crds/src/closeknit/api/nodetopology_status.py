"""What a NodeTopology's status says: what is not healthy, and who was given what."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from closeknit.api.nodetopology import MAX_GPUS_PER_NODE, MAX_LINKS_PER_GPU, MAX_NICS_PER_NODE, GpuIndex
from closeknit.api.wire import Condition, Label, Message, Name, Timestamp, Uuid, Wire

Reason = Annotated[str, StringConstraints(max_length=64)]
MAX_RUN_ENDS = 16


class Health(StrEnum):
    """State of a device that is not healthy."""

    DEGRADED = "Degraded"
    UNHEALTHY = "Unhealthy"
    DOWN = "Down"


class TrafficPath(StrEnum):
    """A way that a container's data has moved."""

    NVLINK = "NVLink"
    RDMA = "RDMA"
    SOCKET = "Socket"


class GpuStatus(Wire):
    """A GPU that is not healthy."""

    index: GpuIndex
    """NVML index."""
    state: Health
    """Degraded or Unhealthy."""
    reasons: Annotated[list[Reason], Field(max_length=16)] = []
    """Why, for example XID79."""


class NicStatus(Wire):
    """A NIC that is not healthy."""

    name: Label
    """Name of the RDMA device."""
    state: Health
    """Degraded, Unhealthy or Down."""
    reasons: Annotated[list[Reason], Field(max_length=16)] = []
    """Why, for example PortDown."""


class LinkDown(Wire):
    """An NVLink that is down."""

    gpu: GpuIndex
    """NVML index."""
    link: Annotated[int, Field(ge=0, lt=MAX_LINKS_PER_GPU)]
    """Link number of that GPU."""


class Allocation(Wire):
    """Devices that the kubelet gave to one container."""

    namespace: Label
    """Namespace of the Pod."""
    pod: Name
    """Name of the Pod."""
    pod_uid: Annotated[Uuid | None, Field(alias="podUID")] = None
    """UID of the Pod."""
    container: Label
    """Name of the container."""
    devices: Annotated[list[Uuid], Field(max_length=256)]
    """UUIDs of GPUs and MIG devices."""
    paths: Annotated[list[TrafficPath], Field(max_length=8)] = []
    """Ways that its data has moved, from counters."""


class RunEnd(Wire):
    """One run of a job that ended by this node or one of its GPUs."""

    job: Annotated[str, StringConstraints(max_length=127)]
    """Namespace and name of the job."""
    reason: Reason
    """Why its run ended, as in status.attempts of the job."""
    ended: Timestamp
    """When that was written."""
    gpu: Uuid | None = None
    """UUID of the GPU that ended it; absent: the node."""


class LemonStatus(Wire):
    """A node that ended two runs within seven days, or has a GPU that did."""

    since: Timestamp
    """When the run ended that made it one."""
    message: Message
    """Which runs ended by it, and how to clear that."""


class NodeTopologyStatus(Wire):
    """What changes while the machine runs."""

    conditions: Annotated[list[Condition], Field(max_length=16)] = []
    """Ready, FabricReady, GPUDirectRDMAReady."""
    heartbeat_time: Timestamp | None = None
    """Last sign of life of the agent."""
    agent_version: Label | None = None
    """Version of the agent."""
    driver_load: Label | None = None
    """Which load of the driver, of which start of the machine, this speaks of; another one has other XIDs."""
    gpus: Annotated[list[GpuStatus], Field(max_length=MAX_GPUS_PER_NODE)] = []
    """GPUs that are not healthy."""
    nics: Annotated[list[NicStatus], Field(max_length=MAX_NICS_PER_NODE)] = []
    """NICs that are not healthy."""
    links_down: Annotated[list[LinkDown], Field(max_length=2304)] = []
    """NVLinks that are down."""
    allocations: Annotated[list[Allocation], Field(max_length=1024)] | None = None
    """Devices that the kubelet gave to containers; absent where nobody could ask it."""
    run_ends: Annotated[list[RunEnd], Field(max_length=MAX_RUN_ENDS)] | None = None
    """Runs that ended by this node or its GPUs within seven days, the oldest first: written by the operator. The
    annotation closeknit.dev/lemon-cleared, with a time, clears those until then."""
    lemon: LemonStatus | None = None
    """That jobs are placed here last, and why: written by the operator."""
