"""The kept parts of each kind of object, the keys that file them, and the nodes that they concern.

A NodeView is a function of what is filed under its node's name, so that it is derived again exactly when something
changes there, or when a table says by `touches` that an object reaches a node by another way.
"""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any, NamedTuple

from closeknit.api.names import JobKey, Role
from closeknit.api.nodetopology_status import RunEnd
from closeknit.api.objects import ClusterTopology, TrainingJob
from closeknit.cluster.booking.booking import AwaitedAttempt, Booking, booking
from closeknit.cluster.booking.job import InvalidJob
from closeknit.cluster.booking.pod_needs import PodNeeds, pod_needs
from closeknit.cluster.capacity.placeholder import CapacityRefusal, FirstAsk, Placeholder
from closeknit.cluster.capacity.provisioning import ProvisioningRequest
from closeknit.cluster.immutable.table import Index, ObjectKey, Reader, Table, by_key, by_name
from closeknit.cluster.kueue.flavors import ResourceFlavor, ServedKind, WorkloadPriorityClass
from closeknit.cluster.kueue.workload import Workload
from closeknit.cluster.node.holders import BookedShare
from closeknit.cluster.node.mig_devices import mig_resource
from closeknit.cluster.objects.agent_report import AgentReport, ReportedAllocation, differ_in_heartbeat_alone
from closeknit.cluster.objects.dra import DeviceTaintRule, ResourceClaim, ResourceSlice
from closeknit.cluster.objects.dranet import NicSlice
from closeknit.cluster.objects.nic_exposure import has_functions, is_claimed, with_nics
from closeknit.cluster.objects.node_objects import DeviceClass, Node, PriorityClass
from closeknit.cluster.objects.silence import Silence
from closeknit.cluster.objects.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from closeknit.cluster.pods.pod import Lodger, Pod


def _itself(value: Any) -> Any:
    return value


# Nodes and what their agents say.
NODES = Table[str, Node](by_name, _itself, is_by_node=True)
REPORTS = Table[str, AgentReport](by_name, _itself, is_by_node=True, looks_alike=differ_in_heartbeat_alone)
ALLOCATIONS = Table[str, tuple[ReportedAllocation, ...]](by_name, attrgetter("allocations"))
RUN_ENDS = Table[str, tuple[RunEnd, ...]](by_name, attrgetter("run_ends"))
"""Of nodes by which runs have ended, as they are stored with them."""

SILENCES = Table[str, Silence](by_name, _itself, is_by_node=True)

# What is one for the whole cluster.
TOPOLOGIES = Table[str, ClusterTopology](by_name, _itself)
PRIORITIES = Table[str, PriorityClass](by_name, _itself)
DEVICE_CLASSES = Table[str, DeviceClass](by_name, _itself, touches=lambda reader, _: reader.all(NODES))


# Jobs and their bookings.
class BookedNeeds(NamedTuple):
    """A job's booking, and the needs of its Pods."""

    booking: Booking
    pods: PodNeeds


def _booked(job: TrainingJob | InvalidJob) -> BookedNeeds | None:
    found = booking(job)
    if found is None:
        return None
    return BookedNeeds(found, PodNeeds() if isinstance(job, InvalidJob) else pod_needs(job.spec))


def _booked_on(job: JobKey, booked: BookedNeeds) -> Iterable[tuple[str, BookedShare]]:
    held, needs = booked.booking, booked.pods
    wanted = {
        (resource, nics): with_nics(needs.worker, resource, nics)
        for resource, nics in {(share.rdma_resource, len(share.nics)) for share in (*held.shares, *held.spares)}
    }
    for position, share in enumerate((*held.shares, *held.spares)):
        if share.lost:
            continue
        role, index = (Role.WORKER, position) if share.server is None else (Role.PARAMETER_SERVER, share.server)
        pod = needs.server if share.server is not None else wanted[share.rdma_resource, len(share.nics)]
        if share.succeeded:  # whether its Pod is still there or not
            pod = ()
        gpus, mig, resource = share.gpus, share.mig_device, ""
        if mig:
            gpus, resource = (), mig_resource(needs.mig)
        yield (
            share.node,
            BookedShare(
                share.node,
                job,
                role,
                index,
                held.uid,
                held.attempt,
                gpus,
                share.binding,
                pod,
                mig,
                resource,
                () if share.succeeded or not is_claimed(share.rdma_resource) else share.nics,
                not share.succeeded and has_functions(share.rdma_resource),
                needs.takes_any or bool(share.nics),  # over NICs sets may be worth the same that are joined otherwise
                share.replacement,
                position >= len(held.shares),
            ),
        )


def _job_key(key: ObjectKey) -> JobKey:
    return JobKey(*key)


def _nodes_of_unseen(reader: Reader, job: TrainingJob) -> Iterable[str]:
    """Nodes that Pods are made for, and of bound Pods whose claim is not seen allocated: their job decides whether they
    hold anything there."""
    claims = reader.all(CLAIMS)
    for pod in reader.under(PODS_OF, job.key):
        if not pod.node:
            yield from (pod.pinned,) if pod.pinned else ()
        elif pod.name in pod.claims and not ((claim := claims.get(pod.key)) is not None and claim.devices):
            yield pod.node


JOBS = Table[JobKey, TrainingJob](
    _job_key, lambda job: job if isinstance(job, TrainingJob) else None, touches=_nodes_of_unseen
)
"""Jobs as their Workloads admit them (cluster/kueue/admission.py)."""
SUBMITTED = Table[JobKey, TrainingJob](_job_key, _itself)
"""As their authors wrote them, those of which JOBS has another form."""
INVALID_JOBS = Table[JobKey, InvalidJob](_job_key, lambda job: job if isinstance(job, InvalidJob) else None)
BOOKED_ON = Index[JobKey, BookedNeeds, str, BookedShare](
    _booked_on, attrgetter("job", "role", "index"), is_by_node=True
)
BOOKINGS = Table[JobKey, BookedNeeds](_job_key, _booked, (BOOKED_ON,))


def _awaits(job: TrainingJob | InvalidJob) -> tuple[AwaitedAttempt, ...] | None:
    """The jobs that make room for this one; None without any, and for a job that takes none of it now."""
    placement = job.status.placement
    if placement is None or not placement.awaits or isinstance(job, InvalidJob):
        return None
    if job.spec.suspend or job.metadata.deletion_timestamp is not None:
        return None
    held = booking(job)
    return held.awaits if held is not None else None


AWAITING = Table[JobKey, tuple[AwaitedAttempt, ...]](_job_key, _awaits)


class BlamedEnd(NamedTuple):
    """A node, and the run that ended by it."""

    node: str
    end: RunEnd


def _blamed(job: TrainingJob | InvalidJob) -> tuple[BlamedEnd, ...] | None:
    """Runs of the job that ended by a node or its GPUs, as its status tells of them; None without any."""
    if isinstance(job, InvalidJob):
        return None
    return (
        tuple(
            BlamedEnd(each.node, RunEnd(job=str(job.key), reason=attempt.reason, ended=attempt.ended, gpu=each.gpu))
            for attempt in job.status.attempts
            for each in attempt.blamed or ()
        )
        or None
    )


BLAMED_ON = Index[JobKey, tuple[BlamedEnd, ...], str, RunEnd](
    lambda _, ends: ends, lambda end: (end.ended, end.job, end.gpu or "", end.reason)
)
BLAMED = Table[JobKey, tuple[BlamedEnd, ...]](_job_key, _blamed, (BLAMED_ON,))


# Pods of both streams: who is on a node, or about to be, and who is of a job.
def _live_on(_: ObjectKey, value: Pod) -> Iterable[tuple[str, Pod]]:
    return ((value.node, value),) if value.node and value.is_live else ()


def _made_for(_: ObjectKey, value: Pod) -> Iterable[tuple[str, Pod]]:
    return ((value.pinned, value),) if value.pinned and not value.node and value.is_live else ()


def _owned(_: ObjectKey, value: Pod) -> Iterable[tuple[JobKey, Pod]]:
    return ((value.job, value),) if value.job is not None else ()


def _left_on(reader: Reader, value: Pod) -> Iterable[str]:
    """The node that an unbound Pod is made for: it takes only its booking there. And the node of an ended Pod, which
    stands for its booking there until it is deleted."""
    if value.node and not value.is_live:
        return (value.node,) if value.job else ()
    booked = reader.all(BOOKINGS).get(value.job) if value.job else None
    is_booked = booked is not None and booked.booking.attempt == value.attempt
    return (value.pinned,) if value.pinned and not value.node and not is_booked else ()


# What no NodeView reads of a Pod, but for whether it is live and whether it is being deleted.
_UNREAD = frozenset(
    {
        *("phase", "deletion_timestamp", "conditions", "containers", "reason", "message"),
        *("priority", "resource_version", "created"),
    }
)
_weight = attrgetter(*(field for field in Pod.__struct_fields__ if field not in _UNREAD), "is_live")


def _weighs_alike(before: Pod, now: Pod) -> bool:
    """Whether a Pod takes the same of the same node, for the same share, as a bound Pod that starts there does."""
    is_same_end = (before.deletion_timestamp is None) is (now.deletion_timestamp is None)
    return is_same_end and bool(_weight(before) == _weight(now))


LIVE_PODS_ON = Index[ObjectKey, Pod, str, Pod](_live_on, attrgetter("key"), is_by_node=True)
MADE_FOR = Index[ObjectKey, Pod, str, Pod](_made_for, attrgetter("key"))
PODS_OF = Index[ObjectKey, Pod, JobKey, Pod](_owned, attrgetter("key"))
PODS = Table[ObjectKey, Pod](
    by_key,
    lambda value: value if isinstance(value, Pod) else None,
    (LIVE_PODS_ON, MADE_FOR, PODS_OF),
    touches=_left_on,
    looks_alike=_weighs_alike,
)
HIDDEN_PODS = Table[ObjectKey, Pod](by_key, _itself)
"""Others' Pods with a name of ours: the two streams of Pods are not in step."""
LODGERS = Table[ObjectKey, Lodger](
    by_key,
    lambda value: value if isinstance(value, Lodger) else None,
    touches=lambda _, lodger: (lodger.node,),
)
"""Not filed by node: other_pods.py has their sums."""

# DRA.
ANY_POOL = ""  # no pool is called so

SLICES_ON = Index[str, ResourceSlice, str, ResourceSlice](
    lambda _, part: ((part.node, part),), attrgetter("name"), is_by_node=True
)
SLICES_OF_POOL = Index[str, ResourceSlice, str, ResourceSlice](lambda _, part: ((part.pool, part),), attrgetter("name"))
SLICES = Table[str, ResourceSlice](
    by_name, lambda part: part if isinstance(part, ResourceSlice) else None, (SLICES_ON, SLICES_OF_POOL)
)
NIC_SLICES_ON = Index[str, NicSlice, str, NicSlice](
    lambda _, part: ((part.node, part),), attrgetter("name"), is_by_node=True
)
NIC_SLICES_OF_POOL = Index[str, NicSlice, str, NicSlice](lambda _, part: ((part.pool, part),), attrgetter("name"))
NIC_SLICES = Table[str, NicSlice](
    by_name, lambda part: part if isinstance(part, NicSlice) else None, (NIC_SLICES_ON, NIC_SLICES_OF_POOL)
)


DEVICE_TAINT_RULES_ON = Index[str, DeviceTaintRule, str, DeviceTaintRule](
    lambda _, rule: ((rule.pool or ANY_POOL, rule),), lambda rule: (rule.key, rule.name)
)
"""By pool, and under ANY_POOL those of all."""


def _nodes_of_tainted(reader: Reader, rule: DeviceTaintRule) -> Iterable[str]:
    if rule.pool:
        yield from (part.node for part in reader.under(SLICES_OF_POOL, rule.pool))
        yield from (part.node for part in reader.under(NIC_SLICES_OF_POOL, rule.pool))
    else:
        yield from (part.node for part in reader.all(SLICES).values())
        yield from (part.node for part in reader.all(NIC_SLICES).values())


DEVICE_TAINT_RULES = Table[str, DeviceTaintRule](by_name, _itself, (DEVICE_TAINT_RULES_ON,), touches=_nodes_of_tainted)


def _pools_of(_: ObjectKey, claim: ResourceClaim) -> Iterable[tuple[str, ResourceClaim]]:
    return ((pool, claim) for pool, _ in claim.devices)


def _nic_pools_of(_: ObjectKey, claim: ResourceClaim) -> Iterable[tuple[str, ResourceClaim]]:
    return ((pool, claim) for pool in dict.fromkeys(pool for pool, _ in claim.nics))


def _named(_: ObjectKey, claim: ResourceClaim) -> Iterable[tuple[JobKey, ResourceClaim]]:
    return ((claim.job, claim),) if claim.job is not None else ()


def _nodes_of_pools(reader: Reader, claim: ResourceClaim) -> Iterable[str]:
    yield from (part.node for pool, _ in claim.devices for part in reader.under(SLICES_OF_POOL, pool))
    yield from (part.node for pool, _ in claim.nics for part in reader.under(NIC_SLICES_OF_POOL, pool))


CLAIMS_IN = Index[ObjectKey, ResourceClaim, str, ResourceClaim](_pools_of, attrgetter("key"))
CLAIMS_OF = Index[ObjectKey, ResourceClaim, JobKey, ResourceClaim](_named, attrgetter("key"))
NICS_CLAIMED_IN = Index[ObjectKey, ResourceClaim, str, ResourceClaim](_nic_pools_of, attrgetter("key"))
CLAIMS = Table[ObjectKey, ResourceClaim](
    by_key, _itself, (CLAIMS_IN, NICS_CLAIMED_IN, CLAIMS_OF), touches=_nodes_of_pools
)


# Storage. No view of a node depends on it: what volumes demand is asked job by job (job_volumes.py).
def _free_of(_: str, volume: PersistentVolume) -> Iterable[tuple[str, PersistentVolume]]:
    return ((volume.storage_class, volume),) if volume.free is not None and volume.claimed_by is None else ()


def _meant_for(_: str, volume: PersistentVolume) -> Iterable[tuple[ObjectKey, PersistentVolume]]:
    return ((volume.claimed_by[:2], volume),) if volume.free is not None and volume.claimed_by is not None else ()


VOLUME_CLAIMS = Table[ObjectKey, PersistentVolumeClaim](by_key, _itself)
FREE_VOLUMES = Index[str, PersistentVolume, str, PersistentVolume](_free_of, attrgetter("name"))
"""By StorageClass, those that any claim of it may get."""
VOLUMES_MEANT_FOR = Index[str, PersistentVolume, ObjectKey, PersistentVolume](_meant_for, attrgetter("name"))
"""By claim, those reserved for it."""
VOLUMES = Table[str, PersistentVolume](by_name, _itself, (FREE_VOLUMES, VOLUMES_MEANT_FOR))
STORAGE_CLASSES = Table[str, StorageClass](by_name, _itself)


# Kueue. A Workload decides for its job, and reaches no node by itself.
WORKLOADS_OF = Index[ObjectKey, Workload, JobKey, Workload](lambda _, value: ((value.job, value),), attrgetter("name"))
WORKLOADS = Table[ObjectKey, Workload](by_key, _itself, (WORKLOADS_OF,))
RESOURCE_FLAVORS = Table[str, ResourceFlavor](by_name, _itself)
WORKLOAD_PRIORITIES = Table[str, WorkloadPriorityClass](by_name, _itself)
PROVISIONING_OF = Index[ObjectKey, ProvisioningRequest, JobKey, ProvisioningRequest](
    lambda _, value: ((value.job, value),), attrgetter("name")
)
PROVISIONING = Table[ObjectKey, ProvisioningRequest](by_key, _itself, (PROVISIONING_OF,))
PLACEHOLDERS_OF = Index[ObjectKey, Placeholder, JobKey, Placeholder](
    lambda _, value: ((value.job, value),), attrgetter("name")
)
PLACEHOLDERS_ON = Index[ObjectKey, Placeholder, str, Placeholder](
    lambda _, value: ((value.node, value),) if value.node else (), attrgetter("key")
)
PLACEHOLDERS = Table[ObjectKey, Placeholder](
    by_key, lambda value: value if isinstance(value, Placeholder) else None, (PLACEHOLDERS_OF, PLACEHOLDERS_ON)
)
"""They reach no node's view: what they stand for is free."""
CAPACITY_NOTES = Table[JobKey, CapacityRefusal | FirstAsk](_job_key, _itself)
"""Of each job the last one."""
SERVED = Table[str, ServedKind](by_name, _itself)
"""Kinds that a cluster need not serve, and that are read of it."""
