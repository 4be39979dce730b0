"""Who holds which GPU of one node: bookings, live Pods, claims and the kubelet's own word, brought together.

A GPU is in use when any of them says so. Of one Pod the kubelet's report is believed first (its devices never change
while it lives), by the node's agent or, where that cannot ask, in the Pod's status; then, where the Pod stands for a
share of a booking, the booking. No word of a Pod about itself counts but what it requests, which nobody can change:
labels, annotations, owners and affinity are anybody's to write; its status is the kubelet's.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from closeknit.api.names import POD_COUNT, JobKey, Role, child_name
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.node import Holder, HolderKind
from closeknit.cluster.pod import Pod
from closeknit.cluster.report import AgentReport
from closeknit.cluster.requests import Needs
from closeknit.machine.graph import Machine


@dataclass(frozen=True, slots=True)
class BookedShare:
    """What one job has booked on one node."""

    node: str
    job: JobKey
    role: Role
    index: int
    """That of the Pod within its role."""
    uid: str
    """Of the job; empty where it is not known."""
    attempt: int
    gpus: tuple[int, ...]
    binding: Binding
    needs: Needs
    """What its Pod takes besides GPUs."""
    mig_device: str = ""
    """UUID of the MIG device that it has in place of GPUs; empty where it has none."""
    mig_resource: str = ""
    """What its Pod asks a device plugin for then."""
    nics: tuple[str, ...] = ()
    """NICs that its Pod claims for itself, as name:port."""
    has_functions: bool = False
    """Whether its Pod is given one of each resource of SR-IOV functions that the node has, if it asks for none."""

    @property
    def pod_key(self) -> tuple[str, str]:
        """Namespace and name of the Pod that is to stand for it."""
        return self.job.namespace, child_name(self.job.name, self.attempt, self.role, self.index)

    def is_of(self, pod: Pod) -> bool:
        """Whether the Pod of that key stands for it: not a namesake of another owner, nor one that asks for something
        else or is elsewhere."""
        return any(owner.is_job(self.uid) for owner in pod.owners) and pod.is_made_for(
            self.node, len(self.gpus), self.binding, mig=self.mig_resource
        )


@dataclass(frozen=True, slots=True)
class Holding:
    """What of a node is held."""

    holders: Mapping[int, Holder]
    """By NVML index, ascending."""
    requested: int
    """GPUs of the device plugin that are spoken for: by Pods, and by bookings whose Pod is not bound yet."""
    unexplained: tuple[Pod, ...]
    """Pods that hold GPUs which nobody can name, by key."""
    unexplained_gpus: int
    taken: Mapping[str, int]
    """What is spoken for of every resource, places for Pods among them: by Pods, and by bookings whose Pod is not bound
    yet."""


def holding(
    machine: Machine,
    report: AgentReport,
    bookings: Sequence[tuple[BookedShare, Pod | None]],
    pods: Sequence[Pod],
    claimed: Iterable[tuple[str, Holder]],
) -> Holding:
    """What is held of one node.

    `bookings` come with the Pod that stands for each once one is bound; `pods` are the live ones on the node, by key;
    `claimed` are (uuid, claim) by claim.
    """
    told = told_of(report)
    holders: dict[int, Holder] = {}
    requested = unexplained_gpus = 0
    unexplained: list[Pod] = []
    taken: dict[str, int] = {}
    covered: dict[tuple[str, str], tuple[int, ...]] = {}
    for share, pod in bookings:
        gpus = _booked_gpus(machine, share, pod, told)
        holder = Holder(HolderKind.JOB, share.job.namespace, share.job.name)
        for index in gpus:
            holders.setdefault(index, holder)
        if pod is not None:
            covered[pod.key] = gpus
        else:
            requested += 0 if share.binding is Binding.DRA else len(share.gpus)
            for resource, amount in share.needs:
                taken[resource] = taken.get(resource, 0) + amount
    for pod in pods:
        gpus = covered.get(pod.key, ())  # these are held by the booking already
        # Of a Pod that asks no plugin the kubelet tells what its claims gave it, an admin's too, which hold nothing: of
        # those `claimed` knows. The agent itself has all GPUs of its node in that way.
        if not gpus and pod.gpu_count and (gpus := _pod_gpus(machine, pod, told)):
            holder = Holder(HolderKind.POD, pod.namespace, pod.name)
            for index in gpus:
                holders.setdefault(index, holder)
        count = pod.gpu_count
        requested += count
        if count > len(gpus):
            unexplained.append(pod)
            unexplained_gpus += count - len(gpus)
        taken[POD_COUNT] = taken.get(POD_COUNT, 0) + 1
        for resource, amount in pod.requests.items():
            taken[resource] = taken.get(resource, 0) + amount
    for uuid, claim in claimed:
        for index in _indexes(machine, (uuid,)):
            holders.setdefault(index, claim)
    return Holding(
        holders=dict(sorted(holders.items())),
        requested=requested,
        unexplained=tuple(unexplained),
        unexplained_gpus=unexplained_gpus,
        taken=taken,
    )


Told = Mapping[tuple[str, str], list[tuple[str | None, tuple[str, ...]]]]
"""What the kubelet gave to the containers of each Pod, as (Pod's uid, devices)."""


def told_of(report: AgentReport) -> Told:
    """What the kubelet gave to the containers of each Pod of a node, as far as its agent was told."""
    told: dict[tuple[str, str], list[tuple[str | None, tuple[str, ...]]]] = {}
    for entry in report.allocations or ():
        told.setdefault((entry.namespace, entry.pod), []).append((entry.pod_uid, entry.devices))
    return told


def _pod_gpus(machine: Machine, pod: Pod, told: Told) -> tuple[int, ...]:
    return _indexes(machine, devices_of(pod, told))


def devices_of(pod: Pod, told: Told) -> Sequence[str]:
    """UUIDs of what one Pod has by the kubelet's word: what its agent was told, else what stands in its status."""
    if pod.key not in told:
        return pod.devices
    return [device for uid, found in told[pod.key] if not (uid and pod.uid and uid != pod.uid) for device in found]


def _booked_gpus(machine: Machine, share: BookedShare, pod: Pod | None, told: Told) -> tuple[int, ...]:
    """GPUs of a booking: the kubelet's word once it covers the share, else the booked indexes with that word."""
    given = () if pod is None else _pod_gpus(machine, pod, told)
    if len(given) >= len(share.gpus):
        return given
    there = {gpu.index for gpu in machine.gpus}
    return tuple(sorted({*given, *(index for index in share.gpus if index in there)}))


def _indexes(machine: Machine, uuids: Sequence[str]) -> tuple[int, ...]:
    """NVML indexes of the GPUs of this machine among `uuids`, ascending."""
    if not uuids:
        return ()
    wanted = set(uuids)
    return tuple(gpu.index for gpu in machine.gpus if gpu.uuid in wanted)


def any_of(pods: Sequence[Pod]) -> Holder:
    """The holder of a GPU that one of these Pods has, nobody knows which; there is at least one, by key."""
    first, *others = pods
    return Holder(HolderKind.POD, first.namespace, first.name, tuple(pod.key for pod in others))
