"""Every name that programs and people share: labels, annotations, conditions, reasons, and the names of children.

docs/reference/names.md lists them for people; tests/unit/project/test_docs.py reads both lists.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

GROUP = "closeknit.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
TRAINING_JOB = "TrainingJob"
NODE_TOPOLOGY = "NodeTopology"
CLUSTER_TOPOLOGY = "ClusterTopology"
DEFAULT_NAMESPACE = "default"  # of an object that names none
NOT_SEEN = "NotSeen"  # status.reason of a TrainingJob that no operator has looked at
DEFAULT_CLUSTER_TOPOLOGY = "default"  # the one ClusterTopology that is used
HOST_LEVEL = "host"  # always the innermost level
NVLINK_DOMAIN_LEVEL = "nvlink-domain"  # inserted where multi-node NVLink exists

# On children, plain strings, since they are keys of manifests that serializers must take.
JOB_LABEL = f"{GROUP}/job"  # name of the TrainingJob
ATTEMPT_LABEL = f"{GROUP}/attempt"  # number of the attempt, from 1
ROLE_LABEL = f"{GROUP}/role"  # a Role
INDEX_LABEL = f"{GROUP}/index"  # of the Pod within its role, from 0; of workers the node rank
GPUS_ANNOTATION = f"{GROUP}/gpus"  # uuids of the GPUs it was made for, in local-rank order: for people, never read
SETTINGS_ANNOTATION = f"{GROUP}/settings"  # digest of what its containers are told, where it restarts in place
# The taint of a DeviceTaintRule of ours: others then keep away from a GPU that its node's agent calls unhealthy.
UNHEALTHY_TAINT = f"{GROUP}/unhealthy"
# On a NodeTopology, by an administrator: runs that ended there until this time are no evidence against it.
LEMON_CLEARED_ANNOTATION = f"{GROUP}/lemon-cleared"
# On namespaces, by an administrator: the chart's admission policy takes any template there.
UNRESTRICTED_TEMPLATES_LABEL = f"{GROUP}/unrestricted-templates"

# On a TrainingJob, by its author: the class of ProvisioningRequest by which it asks for nodes; or PlaceholderPods, or
# Never.
PROVISIONING_CLASS_ANNOTATION = f"{GROUP}/provisioning-class"
PLACEHOLDER_PODS = "PlaceholderPods"  # the class for autoscalers that read pending Pods alone, as Karpenter
# On a placeholder Pod: name of the TrainingJob that waits for its node. It is no child, and holds nothing of the job.
PLACEHOLDER_LABEL = f"{GROUP}/placeholder"
# Its PriorityClass, of the chart. For a Pod below -10 cluster-autoscaler adds nothing
# (--expendable-pods-priority-cutoff).
PLACEHOLDER_PRIORITY_CLASS, PLACEHOLDER_PRIORITY = "closeknit-placeholder", -10

# What others own and closeknit reads.
GPU_RESOURCE = "nvidia.com/gpu"  # NVIDIA's device plugin
SHARED_GPU_RESOURCE = f"{GPU_RESOURCE}.shared"  # what its renameByDefault makes of a shared GPU
GPU_MEMORY_RESOURCE = "aliyun.com/gpu-mem"  # Alibaba's gpushare: memory of a GPU, shared by several Pods
MIG_RESOURCE_PREFIX = "nvidia.com/mig-"  # and a profile: what it makes of MIG devices under its strategy mixed
GPU_DRA_DRIVER = "gpu.nvidia.com"  # NVIDIA's DRA driver, and its DeviceClass
MIG_DEVICE_CLASS = "mig.nvidia.com"  # that driver's DeviceClass of MIG devices
MNNVL = "NCCL_MNNVL_ENABLE"  # NCCL's variable for NVLink between nodes
NIC_DRA_DRIVER = "dra.net"  # DRANET
CLAIMED_PREFIX = "deviceclass.resource.kubernetes.io/"  # Kubernetes' name for devices of a DeviceClass, by claim
IMEX_CHANNELS = "compute-domain-default-channel.nvidia.com"  # the DeviceClass of its driver for ComputeDomains
RDMA_RESOURCE_PREFIX = "rdma/"  # k8s-rdma-shared-dev-plugin's default prefix
ERDMA_RESOURCE = "aliyun/erdma"  # Alibaba's eRDMA controller: one stands for the node's eRDMA devices
EFA_RESOURCE = "vpc.amazonaws.com/efa"  # AWS' EFA device plugin: one for each adapter
GKE_NETWORK_PREFIX = "networking.gke.io.networks/"  # GKE's multi-networking: one for each network of the node
FUNCTION_PREFIX = "k8s.v1.cni.cncf.io/"  # of Multus: and a resource of SR-IOV functions, each with a network of its
GKE_RDMA_NETWORK = "rdma-"  # how the names of those begin that are RDMA NICs
KUEUE_GROUP = "kueue.x-k8s.io"  # Kueue: quotas, and fair share between teams
QUEUE_LABEL = f"{KUEUE_GROUP}/queue-name"  # on a TrainingJob: the LocalQueue whose quota it waits for
QUEUE_PRIORITY_LABEL = f"{KUEUE_GROUP}/priority-class"  # on a TrainingJob: its WorkloadPriorityClass in that queue
POD_COUNT = "pods"  # the resource of a Node: every Pod takes one
TRAINER_CONTAINER = "trainer"
SIDECAR_CONTAINER = "closeknit-sidecar"  # beside the trainer: it tells the gang of a failure
BARRIER_CONTAINER = "closeknit-barrier"  # the init container that holds a start until the gang has left its last run


_CHILD_NAME = re.compile(r"(.+)-a([1-9][0-9]*)-(worker|ps)-([0-9]{5})(?:-r([1-9][0-9]{0,8}))?")


class Role(StrEnum):
    """Role of a child Pod."""

    WORKER = "worker"
    PARAMETER_SERVER = "ps"


class NodeLabel(StrEnum):
    """Labels that the agent keeps on its Node; closeknit.machine.labels says what each of them says."""

    GPU_PRODUCT = f"{GROUP}/gpu.product"
    GPU_COUNT = f"{GROUP}/gpu.count"
    GPU_MEMORY_GIB = f"{GROUP}/gpu.memory-gib"
    GPU_ARCHITECTURE = f"{GROUP}/gpu.architecture"
    NVLINK_KIND = f"{GROUP}/nvlink.kind"
    NVLINK_GENERATION = f"{GROUP}/nvlink.generation"
    NVLINK_LINKS_PER_GPU = f"{GROUP}/nvlink.links-per-gpu"
    NVLINK_GIGABYTES_PER_SECOND = f"{GROUP}/nvlink.gigabytes-per-second"
    NVLINK_ISLANDS = f"{GROUP}/nvlink.islands"
    NVLINK_LARGEST_ISLAND = f"{GROUP}/nvlink.largest-island"
    NVLINK_DOMAIN = f"{GROUP}/nvlink.domain"
    NVSWITCH = f"{GROUP}/nvswitch"
    MIG_MODE = f"{GROUP}/mig.mode"
    MIG_PROFILES = f"{GROUP}/mig.profiles"
    RDMA_TRANSPORT = f"{GROUP}/rdma.transport"
    RDMA_NICS = f"{GROUP}/rdma.nics"
    RDMA_GIGABITS_PER_SECOND = f"{GROUP}/rdma.gigabits-per-second"
    GPUDIRECT_RDMA = f"{GROUP}/gpudirect.rdma"
    GPUDIRECT_STORAGE = f"{GROUP}/gpudirect.storage"
    GPUDIRECT_P2P = f"{GROUP}/gpudirect.p2p"
    TOPOLOGY_CLASS = f"{GROUP}/topology-class"
    HEALTH = f"{GROUP}/health"


class MachineConditionType(StrEnum):
    """Condition types of a NodeTopology."""

    READY = "Ready"
    FABRIC_READY = "FabricReady"
    GPU_DIRECT_RDMA_READY = "GPUDirectRDMAReady"
    ALLOCATIONS_KNOWN = "AllocationsKnown"


class ReadyReason(StrEnum):
    """Reasons of a NodeTopology's condition Ready: True by the first two, else False."""

    READ = "Read"
    PARTLY_READ = "PartlyRead"
    DRIVER_NOT_FOUND = "DriverNotFound"
    DRIVER_NOT_LOADED = "DriverNotLoaded"
    DRIVER_MISMATCH = "DriverMismatch"
    DRIVER_HUNG = "DriverHung"
    DRIVER_FAILED = "DriverFailed"
    PERMISSION_DENIED = "PermissionDenied"
    OUT_OF_MEMORY = "OutOfMemory"
    NO_GPU = "NoGPU"
    NO_GPU_ANSWERS = "NoGPUAnswers"
    INVALID_TOPOLOGY = "InvalidTopology"


class TopologyConditionType(StrEnum):
    """Condition types of a ClusterTopology."""

    READY = "Ready"
    AGENTS_REPORT = "AgentsReport"
    GPUS_OFFERED = "GPUsOffered"


class TopologyReason(StrEnum):
    """Reasons of the conditions of a ClusterTopology: True by the first three, else False."""

    IN_USE = "InUse"
    ALL_REPORT = "AllReport"
    ALL_OFFERED = "AllOffered"
    NOT_USED = "NotUsed"
    UNKNOWN_LABEL = "UnknownLabel"
    LEVELS_REVERSED = "LevelsReversed"
    UNKNOWN_LEVEL = "UnknownLevel"
    UNKNOWN_RESOURCE = "UnknownResource"
    EMPTY_TRAFFIC_CLASS = "EmptyTrafficClass"
    AGENTS_SILENT = "AgentsSilent"
    NOT_OFFERED = "NotOffered"


class GpuReason(StrEnum):
    """Why a GPU is not healthy, in status.gpus; besides `XID<n>`, and NVML's own name of why it does not answer."""

    GPU_LOST = "GPULost"
    GPU_HUNG = "GPUHung"
    DRIVER_CRASHED = "DriverCrashed"
    FABRIC_NOT_READY = "FabricNotReady"
    FABRIC_UNHEALTHY = "FabricUnhealthy"
    MIG_MODE_PENDING = "MIGModePending"
    RECOVERY_NEEDED = "RecoveryNeeded"
    ROW_REMAP_FAILED = "RowRemapFailed"
    ROW_REMAP_PENDING = "RowRemapPending"
    UNCORRECTED_ECC = "UncorrectedECC"
    NVLINK_ERRORS = "NVLinkErrors"
    THERMAL_SLOWDOWN = "ThermalSlowdown"
    POWER_BRAKE = "PowerBrake"
    FOREIGN_PROCESS = "ForeignProcess"


class ConditionType(StrEnum):
    """Condition types of a TrainingJob."""

    ADMITTED = "Admitted"
    PLACED = "Placed"
    PLACEMENT_VERIFIED = "PlacementVerified"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SUSPENDED = "Suspended"
    DEGRADED = "Degraded"


class PendingReason(StrEnum):
    """Why a job waits: the closed list of status.pending.reason."""

    INSUFFICIENT_GPUS = "InsufficientGPUs"
    GPUS_NOT_OFFERED = "GPUsNotOffered"  # by no device plugin, and not by DRA
    INSUFFICIENT_RESOURCES = "InsufficientResources"
    NODES_LOST = "NodesLost"  # it holds the rest of its nodes meanwhile
    MOVE_PENDING = "MovePending"  # jobs that allow it move elsewhere for it; it holds what they leave
    PREEMPTION_PENDING = "PreemptionPending"  # it holds what jobs of lower priority leave, until their Pods are gone
    NO_NVLINK_ISLAND = "NoNVLinkIsland"
    NO_DOMAIN = "NoDomain"
    WAITING_FOR_PREFERRED = "WaitingForPreferred"  # the only one that ends though nothing changes: with its patience
    BEHIND_RESERVATION = "BehindReservation"  # it would fit, and delay a job ahead of it
    UNKNOWN_LEVEL = "UnknownLevel"
    UNKNOWN_TRAFFIC_CLASS = "UnknownTrafficClass"
    NO_MATCHING_GPU = "NoMatchingGPU"
    BANDWIDTH_BELOW_MINIMUM = "BandwidthBelowMinimum"
    RDMA_UNAVAILABLE = "RDMAUnavailable"
    VOLUME_UNAVAILABLE = "VolumeUnavailable"
    NOT_SUPPORTED = "NotSupported"
    TEMPLATE_INVALID = "TemplateInvalid"
    CHANGED_ON_THE_WAY = "ChangedOnTheWay"  # by a mutating policy or webhook of the site
    ADMISSION_UNAVAILABLE = "AdmissionUnavailable"  # a webhook of the site does not answer
    NAME_CONFLICT = "NameConflict"
    QUOTA_EXCEEDED = "QuotaExceeded"
    NAMESPACE_NOT_SERVED = "NamespaceNotServed"
    WAITING_FOR_KUEUE = "WaitingForKueue"  # its LocalQueue has not admitted it
    INTERNAL_ERROR = "InternalError"  # a mistake of closeknit's own


class ExclusionReason(StrEnum):
    """Why a whole node is left out of placement."""

    NO_TOPOLOGY = "NoTopology"
    INVALID_TOPOLOGY = "InvalidTopology"
    AGENT_STALE = "AgentStale"
    UNHEALTHY = "Unhealthy"
    NOT_READY = "NotReady"
    TAINTED = "Tainted"


class EndReason(StrEnum):
    """Why an attempt ended: the closed list of status.attempts[].reason."""

    SUCCEEDED = "Succeeded"
    POD_FAILED = "PodFailed"
    SUSPENDED = "Suspended"
    CHILD_DELETED = "ChildDeleted"
    GPU_TAKEN = "GPUTaken"
    NODE_CHANGED = "NodeChanged"
    UNSCHEDULABLE = "Unschedulable"
    OBJECT_MISSING = "ObjectMissing"
    NODE_REFUSED = "NodeRefused"
    DISRUPTED = "Disrupted"
    PREEMPTED = "Preempted"
    EVICTED_BY_KUEUE = "EvictedByKueue"
    SHRUNK = "Shrunk"
    GROWN = "Grown"
    MOVED = "Moved"
    NODE_LOST = "NodeLost"
    GPU_LOST = "GPULost"
    GPU_UNHEALTHY = "GPUUnhealthy"
    HUNG = "Hung"
    NIC_DOWN = "NICDown"
    RANK_NOT_STARTED = "RankNotStarted"
    MULTICAST_FAILED = "MulticastFailed"
    RDMA_FAILED = "RDMAFailed"
    PREFLIGHT_FAILED = "PreflightFailed"
    PREFLIGHT_SKIPPED = "PreflightSkipped"
    SIDECAR_REFUSED = "SidecarRefused"
    MISPLACED = "Misplaced"
    RESTART_LIMIT_EXCEEDED = "RestartLimitExceeded"
    NO_PROGRESS = "NoProgress"
    DEADLINE_EXCEEDED = "DeadlineExceeded"


class ConditionReason(StrEnum):
    """Reasons of conditions, where it is neither an EndReason nor a PendingReason."""

    ACCEPTED = "Accepted"
    PREFERRED_LEVEL_UNKNOWN = "PreferredLevelUnknown"
    BOOKED = "Booked"
    NOT_PLACED = "NotPlaced"
    RESTARTING = "Restarting"
    FINISHED = "Finished"
    RESUMED = "Resumed"
    STARTING = "Starting"
    NOT_STARTING = "NotStarting"
    ALL_PODS_RUNNING = "AllPodsRunning"
    NOT_BOUND = "NotBound"
    NOT_REPORTED = "NotReported"
    MISMATCH = "Mismatch"
    VERIFIED = "Verified"
    IPC_LOCK_REFUSED = "IPCLockRefused"
    RDMA_NOT_OFFERED = "RDMANotOffered"
    OVER_SOCKETS = "OverSockets"
    WITHOUT_MULTICAST = "WithoutMulticast"
    VOLUME_ON_ONE_NODE = "VolumeOnOneNode"
    PREFLIGHT_FAILED = "PreflightFailed"
    PREFLIGHT_SKIPPED = "PreflightSkipped"
    MEMORY_LOCK_BOUNDED = "MemoryLockBounded"
    TRAFFIC_CLASS_NOT_MARKED = "TrafficClassNotMarked"
    HARMFUL_SETTINGS = "HarmfulSettings"
    FELL_BACK_TO_SOCKETS = "FellBackToSockets"
    NVLINK_SILENT = "NVLinkSilent"
    PODS_NOT_READY = "PodsNotReady"
    DEVICE_UNHEALTHY = "DeviceUnhealthy"
    HANGS = "Hangs"
    STALL_UNSEEN = "StallUnseen"
    RESTARTS_IN_NEW_PODS = "RestartsInNewPods"
    FEWER_GPUS = "FewerGPUs"
    AS_PLANNED = "AsPlanned"


class EventReason(StrEnum):
    """Reasons of Events, where it is neither an EndReason nor a PendingReason."""

    PLACED = "Placed"
    NOT_STARTING = "NotStarting"
    PODS_NOT_READY = "PodsNotReady"
    RESTARTED = "Restarted"
    RESIZE_REFUSED = "ResizeRefused"
    MOVE_REFUSED = "MoveRefused"
    HANGS = "Hangs"
    LEMON = "Lemon"


class EventAction(StrEnum):
    """What was done, in Events."""

    DECIDE = "Decide"
    QUEUE = "Queue"
    PLACE = "Place"
    START = "Start"
    RESTART = "Restart"
    SUSPEND = "Suspend"
    PREEMPT = "Preempt"
    RESIZE = "Resize"
    MOVE = "Move"
    FINISH = "Finish"
    EXCLUDE = "Exclude"


class JobKey(NamedTuple):
    """Namespace and name of a TrainingJob; ordered by both. A tuple, because decisions hash thousands of them."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def service_name(job: str, attempt: int) -> str:
    """Name of the headless Service of one attempt, for example train-a1."""
    return f"{job}-a{attempt}"


def child_name(job: str, attempt: int, role: Role, index: int, replacement: int = 0) -> str:
    """Name of a Pod, and of its claim: a function of job, attempt, role, index and of how many Pods had its place in
    the attempt before it, so that a retry makes nothing twice.

    Of the first Pod it is the host name, too: at most 40 + 2 + 9 + 1 + 6 + 1 + 5 characters; the job's name has at most
    40, and a Pod's host name at most 63.
    """
    name = f"{job}-a{attempt}-{role}-{index:05d}"
    return f"{name}-r{replacement}" if replacement else name


@dataclass(frozen=True, slots=True)
class ChildName:
    """The parts of the name of a Pod, and of its claim. A name never changes; labels may."""

    job: str
    attempt: int
    role: Role
    index: int
    replacement: int = 0
    """How many Pods had its place in the attempt before it."""


def child_named(name: str) -> ChildName | None:
    """What `child_name` made the name of; None for a name that it makes of nothing."""
    found = _CHILD_NAME.fullmatch(name)
    if found is None:
        return None
    job, attempt, role, index, replacement = found.groups()
    return ChildName(job, int(attempt), Role(role), int(index), int(replacement or 0))
