"""Decoded messages about a Pod: the only code that reads words of schedulers, kubelets and device drivers.

Words in, values out. Whose fault a symptom is, and what follows, says the table of `closeknit.lifecycle.status.blame`.
"""

import re
from dataclasses import dataclass
from enum import Enum

from closeknit.cluster.pods.pod import DISRUPTION_TARGET, ContainerState, Pod

# What kubelets say of a container that its runtime could not start.
NOT_STARTED = frozenset({"StartError", "ContainerCannotRun"})


class SymptomSource(Enum):
    """The source of a message; the value is for people."""

    SCHEDULER = "The scheduler"
    KUBERNETES = "Kubernetes' controllers"
    KUBELET = "The kubelet, of a Pod as a whole"
    CONTAINER = "The kubelet, of a container"
    DRIVER = "Device drivers"
    TRAINER = "NCCL and the preflight, as containers say last"
    AGENT = "The node's agent, and taints of devices"
    SIDECAR = "The gang's sidecar"
    API_SERVER = "The API server, of what is to be made"
    CLOSEKNIT = "closeknit itself"


class Symptom(Enum):
    """The closed list of messages: their source and meaning."""

    VOLUME_CLAIM_NOT_THERE = (SymptomSource.SCHEDULER, "a PersistentVolumeClaim of the template is not there")
    VOLUME_CLAIM_NOT_BOUND = (SymptomSource.SCHEDULER, "a PersistentVolumeClaim of the template is not bound")
    VOLUME_NOT_THERE = (SymptomSource.SCHEDULER, "the PersistentVolume of a claim is not there")
    VOLUME_IN_USE = (SymptomSource.SCHEDULER, "another Pod has a volume that one Pod at a time may have")
    CLAIM_NOT_THERE = (SymptomSource.SCHEDULER, "a ResourceClaim of the template is not there")
    DEVICE_CLASS_NOT_THERE = (SymptomSource.SCHEDULER, "a DeviceClass that a claim names is not there")
    GPUS_TAKEN = (SymptomSource.SCHEDULER, "GPUs that are booked are not free on the node")
    CLAIMS_NOT_ALLOCATED = (SymptomSource.SCHEDULER, "a device that a claim asks for is not free on the node")
    VOLUME_ELSEWHERE = (SymptomSource.SCHEDULER, "a volume cannot be used on the node")
    VOLUME_BEING_MADE = (
        SymptomSource.SCHEDULER,
        "a claim that outlives the Pods waits for its volume to be made, for one of them",
    )
    NODE_FULL = (SymptomSource.SCHEDULER, "the node has too little left of something else")
    NODE_CLOSED = (SymptomSource.SCHEDULER, "the node is cordoned, or has a taint that the Pod does not tolerate")
    NEIGHBOURS = (SymptomSource.SCHEDULER, "affinity to other Pods, or topology spread, keeps the Pod off the node")
    NODE_NOT_SELECTED = (SymptomSource.SCHEDULER, "the Pod's node selector or affinity does not take the node")
    NOT_SCHEDULED = (SymptomSource.SCHEDULER, "anything else, in whatever scheduler's words")
    IGNORED_FOR_ITS_OWN = (SymptomSource.SCHEDULER, "no word of a Pod that names a scheduler, or claims, of its own")
    IGNORED = (SymptomSource.SCHEDULER, "no word of any other Pod")
    DISRUPTED = (SymptomSource.KUBERNETES, "a drain, a taint, a preemption or the loss of its node ends the Pod")
    DRAINED = (SymptomSource.KUBERNETES, "a Pod is gone, or going, and its node is cordoned")
    DELETED = (SymptomSource.KUBERNETES, "a Pod is gone, or going, and nothing says why")
    NODE_TURNED = (SymptomSource.KUBERNETES, "before a Pod runs there, its node goes, is not Ready, or is closed to it")
    SHUT_DOWN = (SymptomSource.KUBELET, "the node shuts down")
    PREEMPTED = (SymptomSource.KUBELET, "the node needs the room for a critical Pod")
    EVICTED = (SymptomSource.KUBELET, "the node has too little memory, disk or process numbers left")
    OVER_ITS_STORAGE = (SymptomSource.KUBELET, "the Pod uses more disk than its own limits allow")
    PAST_ITS_DEADLINE = (SymptomSource.KUBELET, "the Pod ran longer than the template's activeDeadlineSeconds")
    POD_REFUSED = (SymptomSource.KUBELET, "the node does not take the Pod, or ends it for any other reason")
    IMAGE_NOT_THERE = (SymptomSource.CONTAINER, "a container waits for its image")
    SETTING_NOT_THERE = (SymptomSource.CONTAINER, "a container waits for a ConfigMap, a Secret or a key of one")
    HELD_UP = (SymptomSource.CONTAINER, "a container waits for anything else that the kubelet names")
    SILENT = (SymptomSource.CONTAINER, "a container is on its way, and nothing is said of it")
    NOT_READY = (SymptomSource.CONTAINER, "a Pod runs and is not ready")
    CONTAINER_LOST = (SymptomSource.CONTAINER, "the node was restarted, or lost the container")
    NODE_NOT_READY = (SymptomSource.CONTAINER, "a container failed while a node of the gang is not Ready")
    RANK_NOT_STARTED = (
        SymptomSource.CONTAINER,
        "containers give up after a minute or in words for that, and another Pod of the gang has not started",
    )
    OUT_OF_MEMORY = (SymptomSource.CONTAINER, "a container was killed for its memory")
    NOT_STARTABLE = (SymptomSource.CONTAINER, "a container cannot be started")
    EXITED = (SymptomSource.CONTAINER, "a container ended with an error")
    DEVICES_REFUSED = (SymptomSource.DRIVER, "the device plugin does not give what is booked")
    DEVICES_NOT_GIVEN = (SymptomSource.DRIVER, "the runtime cannot put the devices into a container")
    GPU_NOT_GIVEN = (SymptomSource.DRIVER, "the same, and the words name the GPU")
    OTHER_GPUS_GIVEN = (
        SymptomSource.DRIVER,
        "the device plugin gives slower GPUs than planned, in the first two minutes",
    )
    MULTICAST_FAILED = (SymptomSource.TRAINER, "NCCL could not set up NVSwitch multicast")
    PEER_UNREACHABLE = (
        SymptomSource.TRAINER,
        "NCCL could not reach a peer over RDMA, and every rank that failed says so",
    )
    PREFLIGHT_FAILED = (
        SymptomSource.TRAINER,
        "the preflight found a slow node or link, or failed, where it is enforced",
    )
    PREFLIGHT_NOT_RUN = (SymptomSource.TRAINER, "the preflight could not run in this image")
    SIDECAR_NOT_RUN = (
        SymptomSource.CONTAINER,
        "a gang's sidecar for restarts in place has no image there, or its trainer's image no shell or python",
    )
    GPU_DEAD = (
        SymptomSource.AGENT,
        "a GPU of the gang runs nothing until it is reset: `GPULost`, XID 46, 48, 62, 79, 95, 119, 120, 140 or 143",
    )
    GPU_ILL_AT_EXIT = (SymptomSource.AGENT, "a rank ends with an error, and a GPU of the gang is not healthy")
    NIC_DOWN_AT_EXIT = (SymptomSource.AGENT, "a rank ends with an error, and the port of a NIC of the gang is down")
    HUNG = (
        SymptomSource.SIDECAR,
        "a rank does not answer NCCL's RAS for 30 s, or is behind the others for the job's deadline, and no rank calls "
        "a collective; or a trainer no longer touches its file of progress; where `restart.onHang` is Restart",
    )
    HANGS = (SymptomSource.SIDECAR, "the same, where `restart.onHang` is Warn")
    DEVICE_ILL = (SymptomSource.AGENT, "a GPU is not healthy in any other way, or a port is down, and the ranks go on")
    POD_DENIED = (SymptomSource.API_SERVER, "a policy, a webhook or the namespace's Pod Security refuses the Pod")
    CHANGED_ON_THE_WAY = (
        SymptomSource.API_SERVER,
        "the Pod is changed on its way: its GPUs, its node, its variables, its names or what restarts it, or so that "
        "closeknit's own policy refuses it",
    )
    NOT_ANSWERED = (
        SymptomSource.API_SERVER,
        "a webhook of the site does not answer, or the API server fails each time",
    )
    SYSTEM_NAMESPACE = (SymptomSource.API_SERVER, "the namespace is Kubernetes' or the operator's own")
    NAMESPACE_GOING = (SymptomSource.API_SERVER, "the namespace is being deleted")
    OBJECT_INVALID = (SymptomSource.API_SERVER, "what is made of the template is no valid object")
    QUOTA_USED_UP = (SymptomSource.API_SERVER, "the whole gang is more than is left of a ResourceQuota")
    NAME_TAKEN = (SymptomSource.API_SERVER, "somebody else's object has a name that the job needs")
    NO_RIGHT = (SymptomSource.API_SERVER, "the operator has no right to make this in the namespace")
    ACCOUNT_NOT_THERE = (
        SymptomSource.API_SERVER,
        "the namespace does not have the service account of the Pod, or not yet",
    )
    ACCOUNT_NOT_USABLE = (SymptomSource.API_SERVER, "the operator has no right to use the service account")
    ERRED = (SymptomSource.CLOSEKNIT, "a mistake in deciding on the job, or in writing for it")

    def __init__(self, source: SymptomSource, means: str) -> None:
        self.source = source
        self.means = means


@dataclass(frozen=True, slots=True)
class Said:
    """One symptom with its message."""

    symptom: Symptom
    words: str
    name: str = ""
    """Name of the object in the message; empty without one."""


# Of kube-scheduler 1.27 to 1.36, what its plugins say (pkg/scheduler/framework/plugins); <name> stands for an object's
# name. Of several the first here counts: where an object lacks, no other node helps, and where GPUs are gone, the rest
# does not matter.
SCHEDULER_WORDS: tuple[tuple[str, Symptom], ...] = (
    ('persistentvolumeclaim "<name>" not found', Symptom.VOLUME_CLAIM_NOT_THERE),
    ('persistentvolumeclaim "<name>" is being deleted', Symptom.VOLUME_CLAIM_NOT_THERE),
    ('controller to create the persistentvolumeclaim "<name>"', Symptom.VOLUME_CLAIM_NOT_THERE),
    ("unbound immediate PersistentVolumeClaims", Symptom.VOLUME_CLAIM_NOT_BOUND),
    ('persistentvolumeclaim "<name>" bound to non-existent persistentvolume', Symptom.VOLUME_NOT_THERE),
    ("bound to non-existent pv", Symptom.VOLUME_NOT_THERE),
    ("ReadWriteOncePod access mode", Symptom.VOLUME_IN_USE),
    ('resourceclaim "<name>" not found', Symptom.CLAIM_NOT_THERE),
    ('resourceclaims.resource.k8s.io "<name>" not found', Symptom.CLAIM_NOT_THERE),
    ("controller to create the resourceclaim", Symptom.CLAIM_NOT_THERE),
    ("device class <name> does not exist", Symptom.DEVICE_CLASS_NOT_THERE),
    ("Insufficient nvidia.com/gpu", Symptom.GPUS_TAKEN),
    ("Insufficient nvidia.com/mig-", Symptom.GPUS_TAKEN),
    ("cannot allocate all claims", Symptom.CLAIMS_NOT_ALLOCATED),
    ("resourceclaim not available on the node", Symptom.CLAIMS_NOT_ALLOCATED),
    ("volume node affinity conflict", Symptom.VOLUME_ELSEWHERE),
    ("didn't match PersistentVolume's node affinity", Symptom.VOLUME_ELSEWHERE),
    ("had no available volume zone", Symptom.VOLUME_ELSEWHERE),
    ("didn't find available persistent volumes to bind", Symptom.VOLUME_ELSEWHERE),
    ("did not have enough free storage", Symptom.VOLUME_ELSEWHERE),
    ("binding volumes:", Symptom.VOLUME_ELSEWHERE),
    ("Insufficient <name>", Symptom.NODE_FULL),
    ("Too many pods", Symptom.NODE_FULL),
    ("didn't have free ports", Symptom.NODE_FULL),
    ("exceed max volume count", Symptom.NODE_FULL),
    ("had no available disk", Symptom.NODE_FULL),
    ("were unschedulable", Symptom.NODE_CLOSED),
    ("had untolerated taint", Symptom.NODE_CLOSED),
    ("had taint", Symptom.NODE_CLOSED),
    ("pod affinity rules", Symptom.NEIGHBOURS),
    ("anti-affinity rules", Symptom.NEIGHBOURS),
    ("pod topology spread constraints", Symptom.NEIGHBOURS),
)
# Said of the nodes that a pinned Pod is not made for, too: it counts where nothing else is said.
_NOT_SELECTED = ("didn't match Pod's node affinity/selector", "didn't satisfy plugin(s) [NodeAffinity]")
# What preemption found is a second opinion on the same, behind the first.
_AFTERTHOUGHTS = ("no new claims to deallocate", "still not schedulable", "preemption: ")


def _pattern(words: str) -> re.Pattern[str]:
    return re.compile(re.escape(words).replace("<name>", r"(?P<name>[^\s\",]{0,252}[^\s\",.])"))


_SCHEDULER = tuple((_pattern(words), symptom) for words, symptom in SCHEDULER_WORDS)
_MOST_WORDS = 4096  # characters that are read: a condition's message of 5,000 nodes is a histogram of less


# The kubelet's reason of a Pod as a whole, by its beginning (pkg/kubelet in 1.20 to 1.36).
KUBELET_REASONS: tuple[tuple[str, Symptom], ...] = (
    ("DeadlineExceeded", Symptom.PAST_ITS_DEADLINE),
    ("Terminated", Symptom.SHUT_DOWN),
    ("NodeShutdown", Symptom.SHUT_DOWN),
    ("Shutdown", Symptom.SHUT_DOWN),
    ("Preempting", Symptom.PREEMPTED),
    ("UnexpectedAdmissionError", Symptom.DEVICES_REFUSED),
    ("OutOfnvidia.com/", Symptom.DEVICES_REFUSED),
)
_EVICTED = "Evicted"
# Why a Pod is Evicted. In doubt it is the node's doing: a job is not charged for unknown words.
EVICTIONS: tuple[tuple[str, Symptom], ...] = (
    ("The node had condition", Symptom.POD_REFUSED),
    ("The node was low on resource", Symptom.EVICTED),
    ("Usage of EmptyDir volume", Symptom.OVER_ITS_STORAGE),
    ("Pod ephemeral local storage usage exceeds", Symptom.OVER_ITS_STORAGE),
    ("exceeded its local ephemeral storage limit", Symptom.OVER_ITS_STORAGE),
)
# The kubelet's reason of a container that has ended.
CONTAINER_REASONS: tuple[tuple[str, Symptom], ...] = (
    ("OOMKilled", Symptom.OUT_OF_MEMORY),
    ("ContainerStatusUnknown", Symptom.CONTAINER_LOST),
    ("Unknown", Symptom.CONTAINER_LOST),  # containerd: after a reboot it finds the container's record and no process
    ("StartError", Symptom.NOT_STARTABLE),
    ("ContainerCannotRun", Symptom.NOT_STARTABLE),
)
_NOT_MADE = frozenset({"CreateContainerError", "RunContainerError"})  # its reason of one that waits to be made again
_UUID = re.compile(r"\b(?:GPU|MIG)-[-0-9a-zA-Z]{1,64}")
# The kubelet's reason of a container that waits, by its beginning; empty and the last two are those of one on its way.
WAITING_REASONS: tuple[tuple[str, Symptom], ...] = (
    ("ErrImage", Symptom.IMAGE_NOT_THERE),
    ("ImagePull", Symptom.IMAGE_NOT_THERE),
    ("ImageInspect", Symptom.IMAGE_NOT_THERE),
    ("InvalidImageName", Symptom.IMAGE_NOT_THERE),
    ("RegistryUnavailable", Symptom.IMAGE_NOT_THERE),
    ("SignatureValidationFailed", Symptom.IMAGE_NOT_THERE),
    ("CreateContainerConfigError", Symptom.SETTING_NOT_THERE),
    ("ContainerCreating", Symptom.SILENT),
    ("PodInitializing", Symptom.SILENT),
)
# In what a runtime says of a container that it cannot start, or make: NVIDIA's container toolkit, and devices by CDI.
DRIVER_WORDS: tuple[str, ...] = ("nvidia-container", "CDI device", "NVML", "nvml error", "libnvidia-ml")
# In what a program says last that waited for another rank in vain, in small letters: c10d and torchrun, gRPC as in JAX
# and TensorFlow, Gloo, ssh and the C library's resolver, which does not know the name of a Pod without an address.
WAITING_WORDS: tuple[str, ...] = (
    "timed out",
    "timeout",
    "deadline_exceeded",
    "deadline exceeded",
    "connection refused",
    "failed to connect to all addresses",
    "name or service not known",
    "temporary failure in name resolution",
    "could not resolve hostname",
)


def of_pod(pod: Pod, trainer: str | None) -> Said | None:
    """The symptom of a Pod that has failed, that Kubernetes is about to end, or that does not get its devices; None for
    any other. The trainer counts, and if that has not failed the first failed container."""
    mark = pod.condition(DISRUPTION_TARGET)
    if mark is not None and mark.status == "True" and pod.phase != "Succeeded":
        return Said(Symptom.DISRUPTED, mark.message or mark.reason or "")
    if pod.phase != "Failed":
        return without_devices(pod)
    if pod.reason:
        return _of_whole_pod(pod)
    container = failed_container(pod, trainer)
    return Said(Symptom.EXITED, "") if container is None else _of_container(container)


def without_devices(pod: Pod) -> Said | None:
    """The symptom of a Pod whose runtime recreates a container again and again, because a device driver fails each
    time: so with CDI devices unknown to the runtime, which no restartPolicy ends. None for any other."""
    waiting = (each for each in pod.containers if each.waiting and each.reason in _NOT_MADE)
    container = next((each for each in waiting if are_drivers_words(each.message)), None)
    return None if container is None else _of_driver(container.message)


def failed_container(pod: Pod, trainer: str | None) -> ContainerState | None:
    """The trainer where it ended with an error, else the first container that did."""
    failed = [container for container in pod.containers if container.exit_code]
    decisive = (container for container in failed if container.name == trainer and not container.init)
    return next(decisive, failed[0] if failed else None)


def of_waiting(container: ContainerState) -> Symptom | None:
    """The symptom of a container that waits, except for devices; None for any other."""
    if not container.waiting:
        return None
    begins = (found for begin, found in WAITING_REASONS if container.reason.startswith(begin))
    return next(begins, Symptom.HELD_UP) if container.reason else Symptom.SILENT


def _of_whole_pod(pod: Pod) -> Said:
    symptom = next((found for reason, found in KUBELET_REASONS if pod.reason.startswith(reason)), Symptom.POD_REFUSED)
    if pod.reason == _EVICTED:
        symptom = next((found for words, found in EVICTIONS if words in pod.message), Symptom.POD_REFUSED)
    message = pod.message.strip()
    return Said(symptom, f"{pod.reason} ({message})" if message else pod.reason)


def _of_container(container: ContainerState) -> Said:
    symptom = next((found for reason, found in CONTAINER_REASONS if container.reason == reason), Symptom.EXITED)
    if symptom is Symptom.NOT_STARTABLE and are_drivers_words(container.message):
        return _of_driver(container.message)
    return Said(symptom, container.message.strip())


def _of_driver(message: str) -> Said:
    found = _UUID.search(message)
    return Said(Symptom.DEVICES_NOT_GIVEN if found is None else Symptom.GPU_NOT_GIVEN, message.strip())


def are_drivers_words(message: str) -> bool:
    """Whether a device driver is the source of a runtime's message about a container that it cannot start, or make."""
    return any(words in message for words in DRIVER_WORDS)


def are_of_one_that_waited(message: str) -> bool:
    """Whether a program's last message says that it waited in vain for another one."""
    said = message.casefold()
    return any(words in said for words in WAITING_WORDS)


# Of the chart's own policy for the operator's children: its name, and how the rule about namespaces begins.
FENCE = "closeknit-operator-children"
FENCED_NAMESPACES = "the operator works neither in the namespaces of Kubernetes"


def of_denial(message: str) -> Symptom:
    """The symptom of admission's refusal of a Pod. The operator sends nothing that its own policy refuses: the same
    lists judged the template when its job was created."""
    if "in namespace" in message and "because it is being terminated" in message:  # NamespaceLifecycle, 1.20 to 1.36
        return Symptom.NAMESPACE_GOING
    if f"ValidatingAdmissionPolicy '{FENCE}'" not in message:
        return Symptom.POD_DENIED
    return Symptom.SYSTEM_NAMESPACE if FENCED_NAMESPACES in message else Symptom.CHANGED_ON_THE_WAY


def lacks_account(message: str) -> bool:
    """Whether admission refuses a Pod because its service account is missing: a controller of Kubernetes makes the one
    called default within a second of a new namespace (plugin/pkg/admission/serviceaccount in 1.20 to 1.36)."""
    return "error looking up service account" in message and "not found" in message


def of_scheduler(message: str) -> Said:
    """The obstacle that keeps a Pod off its node, in a scheduler's message; the most important of several."""
    words = message[:_MOST_WORDS]
    for afterthought in _AFTERTHOUGHTS:
        words = words.partition(afterthought)[0]
    for pattern, symptom in _SCHEDULER:
        if found := pattern.search(words):
            return Said(symptom, message, found.groupdict().get("name") or "")
    is_not_selected = any(each in words for each in _NOT_SELECTED)
    return Said(Symptom.NODE_NOT_SELECTED if is_not_selected else Symptom.NOT_SCHEDULED, message)
