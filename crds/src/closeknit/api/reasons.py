"""Reasons and condition types of all kinds: each word that a status or an Event can have."""

from enum import StrEnum


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


LENT = "; lent: "  # in the message of Placed, before what is told of nodes that are spares of others


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
