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
SIZE_ANNOTATION = f"{GROUP}/size"  # of node rank 0's Pod: nodes and ranks of a gang that may grow in place
# The taint of a DeviceTaintRule of ours: others then keep away from a GPU that its node's agent calls unhealthy.
UNHEALTHY_TAINT = f"{GROUP}/unhealthy"
# On a NodeTopology, by an administrator: runs that ended there until this time are no evidence against it.
LEMON_CLEARED_ANNOTATION = f"{GROUP}/lemon-cleared"
# On namespaces, by an administrator: the chart's admission policy takes any template there.
UNRESTRICTED_TEMPLATES_LABEL = f"{GROUP}/unrestricted-templates"
# On a Node, by an administrator: the queue (spec.queue) whose jobs take it in place of a lost one. No job starts there.
SPARE_FOR_LABEL = f"{GROUP}/spare-for"

# On a TrainingJob, by its author: the class of ProvisioningRequest by which it asks for nodes; or PlaceholderPods, or
# Never.
PROVISIONING_CLASS_ANNOTATION = f"{GROUP}/provisioning-class"
GENERATION_LABEL = f"{GROUP}/generation"  # of a ProvisioningRequest: of the TrainingJob that it was made for
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
    """Labels that the agent keeps on its Node; closeknit.machine.published_labels says what each of them says."""

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
