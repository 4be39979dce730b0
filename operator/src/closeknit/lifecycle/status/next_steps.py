"""The one thing to do about each reason: closed tables. A new reason needs its row here, and a test checks that.

Every step is an imperative for the owner of the job. `{job}` stands for its name and the namespace option.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from closeknit.api.names import NOT_SEEN, JobKey
from closeknit.api.reasons import ConditionReason, EndReason, PendingReason

NEAREST = "NearestChange"

WAITING: Mapping[str, str] = {
    PendingReason.INSUFFICIENT_GPUS: "wait for GPUs to become free (`closeknit status` shows how many are), or ask "
    "for fewer",
    PendingReason.GPUS_NOT_OFFERED: "have an administrator set up the GPUs for Pods, by a device plugin or by DRA: "
    "`kubectl get clustertopology default -o yaml` names the nodes (GPUsOffered)",
    PendingReason.INSUFFICIENT_RESOURCES: "ask for less of it in each Pod, or wait until other Pods leave those nodes",
    PendingReason.NODES_LOST: "wait: it takes the first nodes like its own that become free, and begins again "
    "after ten minutes",
    PendingReason.NO_NVLINK_ISLAND: "ask for a smaller group (tensor, context), or let it leave the island "
    "(topology.nvlink)",
    PendingReason.NO_DOMAIN: "prefer the level instead of requiring it (topology.fabric.preferred), or wait",
    PendingReason.WAITING_FOR_PREFERRED: "wait: at the end of its patience it takes what there is; a shorter "
    "topology.fabric.patience takes it sooner",
    PendingReason.WAITING_FOR_KUEUE: (
        "wait for quota; who has it, and what is missing: kubectl get workloads, kubectl describe localqueue"
    ),
    PendingReason.MOVE_PENDING: "wait: it starts as soon as the Pods of the jobs that move elsewhere are gone",
    PendingReason.PREEMPTION_PENDING: "wait: it starts as soon as the Pods of the jobs that make room are gone",
    PendingReason.BEHIND_RESERVATION: "declare how long it runs (expectedDuration): a job that ends before the one "
    "ahead begins may pass it",
    PendingReason.UNKNOWN_LEVEL: "name a level of the cluster: `kubectl get clustertopology default -o yaml` "
    "lists them",
    PendingReason.UNKNOWN_TRAFFIC_CLASS: "name a traffic class of the ClusterTopology, or leave network.trafficClass "
    "out",
    PendingReason.NO_MATCHING_GPU: "name a product that is there: `closeknit topology` lists them",
    PendingReason.BANDWIDTH_BELOW_MINIMUM: "lower topology.minBusBandwidthGBps, or wait for GPUs that are closer "
    "together",
    PendingReason.RDMA_UNAVAILABLE: "set network.rdma: Preferred, or have an administrator offer the NICs to Pods",
    PendingReason.VOLUME_UNAVAILABLE: "mend the claim that the message names: `kubectl describe pvc` says what it "
    "waits for",
    PendingReason.NOT_SUPPORTED: "remove the field that the message names",
    PendingReason.TEMPLATE_INVALID: "mend the template as the message says, and apply the job again",
    PendingReason.CHANGED_ON_THE_WAY: "have an administrator exempt closeknit's Pods from the policy that the message "
    "names",
    PendingReason.ADMISSION_UNAVAILABLE: "have an administrator look at the webhook that does not answer",
    PendingReason.NAME_CONFLICT: "delete the object that the message names, or give the job another name",
    PendingReason.QUOTA_EXCEEDED: "ask for less, or have the quota of the namespace raised: `kubectl describe quota`",
    PendingReason.NAMESPACE_NOT_SERVED: "use a namespace that the operator serves, or have it added to rbac.namespaces",
    PendingReason.INTERNAL_ERROR: "report it: `closeknit snapshot` writes what a report needs",
}

_LOG = "read what its ranks said last: closeknit logs {job}"
_GOES_ON = "nothing: it starts again by itself, elsewhere where that is needed"
ENDED: Mapping[str, str] = {
    EndReason.SUCCEEDED: "",
    EndReason.SUSPENDED: "set spec.suspend: false to go on",
    EndReason.POD_FAILED: _LOG,
    EndReason.RESTART_LIMIT_EXCEEDED: _LOG,
    EndReason.NO_PROGRESS: _LOG,
    EndReason.DEADLINE_EXCEEDED: "raise spec.activeDeadlineSeconds, and submit it again",
    EndReason.HUNG: "look at the rank that the message names: closeknit ranks {job}",
    EndReason.CHILD_DELETED: _GOES_ON,
    EndReason.GPU_TAKEN: _GOES_ON,
    EndReason.NODE_CHANGED: _GOES_ON,
    EndReason.UNSCHEDULABLE: _GOES_ON,
    EndReason.OBJECT_MISSING: "make the object that the message names",
    EndReason.NODE_REFUSED: _GOES_ON,
    EndReason.DISRUPTED: _GOES_ON,
    EndReason.EVICTED_BY_KUEUE: "nothing: it starts again by itself once Kueue admits it (kubectl get workloads)",
    EndReason.PREEMPTED: "nothing: it starts again by itself as soon as there is room",
    EndReason.SHRUNK: _GOES_ON,
    EndReason.GROWN: _GOES_ON,
    EndReason.MOVED: _GOES_ON,
    EndReason.NODE_LOST: _GOES_ON,
    EndReason.GPU_LOST: _GOES_ON,
    EndReason.GPU_UNHEALTHY: _GOES_ON,
    EndReason.NIC_DOWN: _GOES_ON,
    EndReason.RANK_NOT_STARTED: "look at the Pod that had not started: closeknit ranks {job}",
    EndReason.MULTICAST_FAILED: _GOES_ON,
    EndReason.RDMA_FAILED: _GOES_ON,
    EndReason.PREFLIGHT_FAILED: _GOES_ON,
    EndReason.PREFLIGHT_SKIPPED: "use an image with python and torch.distributed or libnccl, or set preflight: Off",
    EndReason.SIDECAR_REFUSED: _GOES_ON,
    EndReason.MISPLACED: _GOES_ON,
}

_BY_MESSAGE = "do what the message says"
TOLD: Mapping[str, str] = {
    ConditionReason.NOT_STARTING: "mend what the message names, an image or a ConfigMap say; the Pods then start "
    "by themselves",
    ConditionReason.PODS_NOT_READY: "look at the probe of the Pod that the message names: kubectl describe pod",
    ConditionReason.NOT_BOUND: "",
    ConditionReason.NOT_REPORTED: "",
    ConditionReason.MISMATCH: "use DRA, or whole nodes (topology.gpusPerNode), where the GPUs must be the planned ones",
    ConditionReason.IPC_LOCK_REFUSED: "have the namespace admit the capability IPC_LOCK, or go on without RDMA",
    ConditionReason.RDMA_NOT_OFFERED: "have an administrator offer the NICs to Pods",
    ConditionReason.OVER_SOCKETS: "set network.rdma: Required to wait for nodes with RDMA alone",
    ConditionReason.WITHOUT_MULTICAST: "",
    ConditionReason.VOLUME_ON_ONE_NODE: "use a claim that is ReadWriteMany",
    ConditionReason.PREFLIGHT_FAILED: "have an administrator look at the node or link that the message names",
    ConditionReason.PREFLIGHT_SKIPPED: "use an image with python and torch.distributed or libnccl, or set preflight: "
    "Off",
    ConditionReason.MEMORY_LOCK_BOUNDED: "run the trainer as root, or have the limit of locked memory raised",
    ConditionReason.TRAFFIC_CLASS_NOT_MARKED: _BY_MESSAGE,
    ConditionReason.HARMFUL_SETTINGS: "remove these settings: closeknit env {job}",
    ConditionReason.FELL_BACK_TO_SOCKETS: "read what NCCL says of its networks: closeknit logs {job}",
    ConditionReason.NVLINK_SILENT: "read what NCCL says of its rings: closeknit logs {job}",
    ConditionReason.DEVICE_UNHEALTHY: "let it go on: a restart takes other GPUs",
    ConditionReason.HANGS: "look at the rank that the message names, or set restart.onHang: Restart",
    ConditionReason.STALL_UNSEEN: "have an administrator give the operator an image for the sidecar",
    ConditionReason.RESTARTS_IN_NEW_PODS: _BY_MESSAGE,
    ConditionReason.FEWER_GPUS: "nothing: it grows by itself once there has been room for a while",
    ConditionReason.STARTING: "",
    ConditionReason.RESTARTING: "",
}
# They never are status.reason: all is well, or another reason stands beside them.
NEVER_TOLD = frozenset(
    {
        ConditionReason.ACCEPTED,
        ConditionReason.PREFERRED_LEVEL_UNKNOWN,
        ConditionReason.BOOKED,
        ConditionReason.NOT_PLACED,
        ConditionReason.FINISHED,
        ConditionReason.RESUMED,
        ConditionReason.ALL_PODS_RUNNING,
        ConditionReason.VERIFIED,
        ConditionReason.AS_PLANNED,
    }
)
UNSEEN: Mapping[str, str] = {
    NOT_SEEN: "have an administrator look at the Deployment closeknit-operator: "
    "kubectl get pods -A -l app.kubernetes.io/component=operator"
}

_OVER = ("Succeeded", "Failed")


class Step(NamedTuple):
    """The one thing to do."""

    code: str
    """NearestChange: a change of the job with which it would fit now. Otherwise the reason that it answers."""
    text: str


def next_step(
    job: JobKey, state: str, reason: str | None, nearest: Sequence[str] | None, *, is_readable: bool
) -> Step | None:
    """What the owner of a job does next; None where there is nothing to do. `nearest` None: it does not wait for
    GPUs."""
    if not reason:
        words = ENDED[EndReason.SUSPENDED] if state == EndReason.SUSPENDED else ""
        return Step(EndReason.SUSPENDED, words) if words else None
    if nearest:
        return Step(NEAREST, f"it would fit now {nearest[0]}")
    if not is_readable:
        return Step(reason, "mend the field that the message names, and apply the job again")
    told = ENDED if state in _OVER else {**ENDED, **WAITING, **TOLD, **UNSEEN}
    table = WAITING if nearest is not None else told
    words = table.get(reason, "")
    return Step(reason, words.replace("{job}", f"{job.name} -n {job.namespace}")) if words else None
