"""Blame and consequence: the closed table of all that schedulers, kubelets, the API server and device drivers say of a
job's Pods. docs/blame.md is generated from it.

`closeknit.cluster.pods.symptoms` reads the words, and everything that ends an attempt looks here for what comes of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from closeknit.api.reasons import ConditionReason, EndReason, PendingReason
from closeknit.cluster.pods.symptoms import Symptom


class Blame(Enum):
    """Whose fault it is; the value is for people. Only the job's own faults are charged to it."""

    NODE = "this node"
    GPU = "these GPUs of the node"
    JOB = "this job"
    OBJECT = "an object that it needs"
    SITE = "the site"
    CLOSEKNIT = "closeknit"
    NOBODY = "nobody"


class Consequence(NamedTuple):
    """What follows, for people."""

    word: str
    means: str


class Follows(Enum):
    """What follows."""

    ELSEWHERE = Consequence(
        "elsewhere", "the attempt ends; the next one avoids the node until that changes, for ten minutes at most"
    )
    OTHER_GPUS = Consequence(
        "the other GPUs",
        "the attempt ends; where claims say which GPUs a Pod gets, the next one avoids these alone, until half of the "
        "node's were tried; else the node",
    )
    AGAIN = Consequence("placed again", "the attempt ends; the next one takes what is best then, and may take the same")
    WAIT = Consequence("wait, hold nothing", "the job holds nothing, and is tried again after pauses that grow")
    END = Consequence(
        "end",
        "the run ends, and that is charged to the job: it starts again if its `restart` says so, on the same GPUs "
        "where they still fit; else it has failed",
    )
    TELL = Consequence("tell", "it is told in the status and an Event; nothing ends by it")


@dataclass(frozen=True, slots=True)
class Row:
    """The consequence of one symptom."""

    blame: Blame
    follows: Follows
    reason: EndReason | PendingReason | ConditionReason
    after: timedelta = timedelta()
    """How long it must last if it may clear by itself: a passing symptom ends nothing."""

    @property
    def is_charged(self) -> bool:
        """Whether the end of the attempt counts against restart.limit."""
        return self.blame is Blame.JOB and self.follows is Follows.END


# A rank that cannot be scheduled so long has lost its GPUs: the scheduler sees a device that was just freed within
# 0.05 s (measured on Kubernetes 1.36).
TAKEN_AFTER = timedelta(seconds=2)
# What else a scheduler lacks (CPU, a port, a neighbour) may be on its way out with another Pod's grace period of 30 s.
REFUSED_AFTER = timedelta(seconds=30)
# A disk is made within seconds, a file system within minutes, and by a driver that is not there never: without the gang
# it is made as well, and kube-scheduler itself would wait for 10 min (VolumeBinding's bindTimeoutSeconds).
MADE_WITHIN = timedelta(minutes=2)
# Another replica of kube-scheduler takes over 15 s after the leader has gone (its leaseDuration), and works off what
# has queued up meanwhile: some hundred Pods a second.
IGNORED_AFTER = timedelta(seconds=30)
# The Pod of a scheduler that is installed beside the first may be drained, and its image be pulled.
IGNORED_FOR_ITS_OWN_AFTER = timedelta(minutes=2)
# A kubelet that is restarted says NotReady for some ten seconds, and starts what is bound to it all the same.
NOT_READY_AFTER = timedelta(seconds=30)
# A webhook that is rolled out, or moves to another node, is back within seconds.
NOT_ANSWERED_AFTER = timedelta(seconds=30)
SILENT_AFTER = timedelta(minutes=5)  # an image of many gigabytes takes minutes
UNREADY_AFTER = timedelta(minutes=10)  # as long as data is given to be read, staged and compiled (slow_path.py)

# What ends sooner without a word has most likely not waited for anybody: ranks wait for each other for five minutes and
# more (c10d and JAX), and what a program gets wrong by itself it does in its first seconds.
WAITED_AT_LEAST = timedelta(minutes=1)

_GPUS = Row(Blame.GPU, Follows.OTHER_GPUS, EndReason.GPU_TAKEN, TAKEN_AFTER)
_ELSEWHERE = Row(Blame.NODE, Follows.ELSEWHERE, EndReason.UNSCHEDULABLE, REFUSED_AFTER)
_OBJECT = Row(Blame.OBJECT, Follows.WAIT, EndReason.OBJECT_MISSING, REFUSED_AFTER)

_DISRUPTED = Row(Blame.NOBODY, Follows.AGAIN, EndReason.DISRUPTED)
_ENDED_BY_NODE = Row(Blame.NODE, Follows.AGAIN, EndReason.DISRUPTED)
_REFUSED = Row(Blame.NODE, Follows.ELSEWHERE, EndReason.NODE_REFUSED)
_LOST = Row(Blame.NODE, Follows.AGAIN, EndReason.NODE_LOST)
_OWN_FAULT = Row(Blame.JOB, Follows.END, EndReason.POD_FAILED)

TABLE: Mapping[Symptom, Row] = MappingProxyType(
    {
        Symptom.VOLUME_CLAIM_NOT_THERE: _OBJECT,
        Symptom.VOLUME_CLAIM_NOT_BOUND: _OBJECT,
        Symptom.VOLUME_NOT_THERE: _OBJECT,
        Symptom.VOLUME_IN_USE: _OBJECT,
        Symptom.CLAIM_NOT_THERE: _OBJECT,
        Symptom.DEVICE_CLASS_NOT_THERE: _OBJECT,
        Symptom.GPUS_TAKEN: _GPUS,
        Symptom.CLAIMS_NOT_ALLOCATED: _ELSEWHERE,
        Symptom.VOLUME_ELSEWHERE: _ELSEWHERE,
        Symptom.VOLUME_BEING_MADE: replace(_OBJECT, after=MADE_WITHIN),
        Symptom.NODE_FULL: _ELSEWHERE,
        Symptom.NODE_CLOSED: _ELSEWHERE,
        Symptom.NEIGHBOURS: _ELSEWHERE,
        Symptom.NODE_NOT_SELECTED: _ELSEWHERE,
        Symptom.NOT_SCHEDULED: _ELSEWHERE,
        Symptom.IGNORED_FOR_ITS_OWN: Row(Blame.JOB, Follows.WAIT, EndReason.UNSCHEDULABLE, IGNORED_FOR_ITS_OWN_AFTER),
        Symptom.IGNORED: Row(Blame.SITE, Follows.TELL, ConditionReason.STARTING, IGNORED_AFTER),
        Symptom.DISRUPTED: _DISRUPTED,
        Symptom.DRAINED: _DISRUPTED,
        Symptom.DELETED: Row(Blame.NOBODY, Follows.AGAIN, EndReason.CHILD_DELETED),
        Symptom.NODE_TURNED: Row(Blame.NODE, Follows.AGAIN, EndReason.NODE_CHANGED, NOT_READY_AFTER),
        Symptom.SHUT_DOWN: _ENDED_BY_NODE,
        Symptom.PREEMPTED: _ENDED_BY_NODE,
        Symptom.EVICTED: _ENDED_BY_NODE,
        Symptom.OVER_ITS_STORAGE: _OWN_FAULT,
        Symptom.PAST_ITS_DEADLINE: _OWN_FAULT,
        Symptom.POD_REFUSED: _REFUSED,
        Symptom.IMAGE_NOT_THERE: Row(Blame.OBJECT, Follows.TELL, ConditionReason.NOT_STARTING),
        Symptom.SETTING_NOT_THERE: Row(Blame.OBJECT, Follows.TELL, ConditionReason.NOT_STARTING),
        Symptom.HELD_UP: Row(Blame.NODE, Follows.TELL, ConditionReason.NOT_STARTING),
        Symptom.SILENT: Row(Blame.NODE, Follows.TELL, ConditionReason.NOT_STARTING, SILENT_AFTER),
        Symptom.NOT_READY: Row(Blame.JOB, Follows.TELL, ConditionReason.PODS_NOT_READY, UNREADY_AFTER),
        Symptom.CONTAINER_LOST: _LOST,
        Symptom.NODE_NOT_READY: _LOST,
        Symptom.RANK_NOT_STARTED: Row(Blame.NOBODY, Follows.AGAIN, EndReason.RANK_NOT_STARTED),
        Symptom.OUT_OF_MEMORY: _OWN_FAULT,
        Symptom.NOT_STARTABLE: _OWN_FAULT,
        Symptom.EXITED: _OWN_FAULT,
        Symptom.DEVICES_REFUSED: _REFUSED,
        Symptom.DEVICES_NOT_GIVEN: _REFUSED,
        Symptom.GPU_NOT_GIVEN: Row(Blame.GPU, Follows.OTHER_GPUS, EndReason.NODE_REFUSED),
        Symptom.OTHER_GPUS_GIVEN: Row(Blame.NOBODY, Follows.AGAIN, EndReason.MISPLACED),
        Symptom.MULTICAST_FAILED: Row(Blame.SITE, Follows.AGAIN, EndReason.MULTICAST_FAILED),
        Symptom.PEER_UNREACHABLE: Row(Blame.NODE, Follows.ELSEWHERE, EndReason.RDMA_FAILED),
        Symptom.PREFLIGHT_FAILED: Row(Blame.NODE, Follows.ELSEWHERE, EndReason.PREFLIGHT_FAILED),
        Symptom.SIDECAR_NOT_RUN: Row(Blame.SITE, Follows.AGAIN, EndReason.SIDECAR_REFUSED),
        Symptom.PREFLIGHT_NOT_RUN: Row(Blame.JOB, Follows.AGAIN, EndReason.PREFLIGHT_SKIPPED),
        Symptom.GPU_DEAD: Row(Blame.GPU, Follows.OTHER_GPUS, EndReason.GPU_LOST),
        Symptom.GPU_ILL_AT_EXIT: Row(Blame.GPU, Follows.OTHER_GPUS, EndReason.GPU_UNHEALTHY),
        Symptom.NIC_DOWN_AT_EXIT: Row(Blame.NODE, Follows.ELSEWHERE, EndReason.NIC_DOWN),
        Symptom.HUNG: Row(Blame.JOB, Follows.END, EndReason.HUNG),
        Symptom.HANGS: Row(Blame.JOB, Follows.TELL, ConditionReason.HANGS),
        Symptom.DEVICE_ILL: Row(Blame.GPU, Follows.TELL, ConditionReason.DEVICE_UNHEALTHY),
        Symptom.POD_DENIED: Row(Blame.JOB, Follows.WAIT, PendingReason.TEMPLATE_INVALID),
        Symptom.CHANGED_ON_THE_WAY: Row(Blame.SITE, Follows.WAIT, PendingReason.CHANGED_ON_THE_WAY),
        Symptom.NOT_ANSWERED: Row(Blame.SITE, Follows.WAIT, PendingReason.ADMISSION_UNAVAILABLE, NOT_ANSWERED_AFTER),
        Symptom.SYSTEM_NAMESPACE: Row(Blame.JOB, Follows.WAIT, PendingReason.NAMESPACE_NOT_SERVED),
        Symptom.NAMESPACE_GOING: Row(Blame.NOBODY, Follows.WAIT, PendingReason.NAMESPACE_NOT_SERVED),
        Symptom.OBJECT_INVALID: Row(Blame.JOB, Follows.WAIT, PendingReason.TEMPLATE_INVALID),
        Symptom.QUOTA_USED_UP: Row(Blame.OBJECT, Follows.WAIT, PendingReason.QUOTA_EXCEEDED),
        Symptom.NAME_TAKEN: Row(Blame.OBJECT, Follows.WAIT, PendingReason.NAME_CONFLICT),
        Symptom.NO_RIGHT: Row(Blame.SITE, Follows.WAIT, PendingReason.NAMESPACE_NOT_SERVED),
        Symptom.ACCOUNT_NOT_THERE: Row(Blame.OBJECT, Follows.WAIT, PendingReason.TEMPLATE_INVALID, NOT_ANSWERED_AFTER),
        Symptom.ACCOUNT_NOT_USABLE: Row(Blame.SITE, Follows.WAIT, PendingReason.TEMPLATE_INVALID),
        Symptom.ERRED: Row(Blame.CLOSEKNIT, Follows.TELL, PendingReason.INTERNAL_ERROR),
    }
)


def end_reason(symptom: Symptom) -> EndReason:
    """The end reason for this symptom. Raises ValueError for one that ends nothing."""
    return EndReason(TABLE[symptom].reason)


def pending_reason(symptom: Symptom) -> PendingReason:
    """The reason to wait for this symptom. Raises ValueError for one that no job waits for."""
    return PendingReason(TABLE[symptom].reason)
