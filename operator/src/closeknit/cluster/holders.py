"""Who holds which GPU of one node: bookings, live Pods, claims and the kubelet's own word, brought together.

A GPU is in use when any of them says so. Of one Pod the kubelet's report is believed first (its devices never change
while it lives), then its annotation closeknit.dev/gpus, then the indexes of its booking, which a reboot may renumber.
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

    job: JobKey
    index: int
    """Position in the placement, which is the index of the worker Pod."""
    uid: str
    """Of the job; empty where it is not known."""
    attempt: int
    gpus: tuple[int, ...]
    binding: Binding
    needs: Needs
    """What its Pod takes besides GPUs."""

    @property
    def pod_key(self) -> tuple[str, str]:
        """Namespace and name of the Pod that is to stand for it."""
        return self.job.namespace, child_name(self.job.name, self.attempt, Role.WORKER, self.index)

    def is_of(self, pod: Pod) -> bool:
        """Whether the Pod of that key stands for it; a namesake of another owner does not."""
        owner = pod.job_owner
        if owner is None or owner.name != self.job.name or pod.index != self.index:
            return False
        return not (owner.uid and self.uid and owner.uid != self.uid)


@dataclass(frozen=True, slots=True)
class Holding:
    """What of a node is held."""

    holders: Mapping[int, Holder]
    """By NVML index, ascending."""
    requested: int
    """GPUs of the device plugin that are spoken for: by Pods, and by bookings whose Pod is not there yet."""
    unexplained: tuple[Pod, ...]
    """Pods that hold GPUs which nobody can name, by key."""
    unexplained_gpus: int
    taken: Mapping[str, int]
    """What is spoken for of every resource, places for Pods among them: by Pods, and by bookings whose Pod is not there
    yet."""


def holding(
    node: str,
    machine: Machine,
    report: AgentReport,
    bookings: Sequence[tuple[BookedShare, Pod | None]],
    pods: Sequence[Pod],
    claimed: Iterable[tuple[str, Holder]],
) -> Holding:
    """What is held of one node.

    `bookings` come with the Pod that stands for each once there is one; `pods` are the live ones on the node, by
    key; `claimed` are (uuid, claim) by claim.
    """
    told = _told(report)
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
        if pod is not None and pod.place == node:
            covered[pod.key] = gpus
        else:
            requested += 0 if share.binding is Binding.DRA else len(share.gpus)
            for resource, amount in share.needs:
                taken[resource] = taken.get(resource, 0) + amount
    for pod in pods:
        gpus = covered.get(pod.key, ())  # these are held by the booking already
        if not gpus and (gpus := _pod_gpus(machine, pod, told)):
            holder = _holder(pod)
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


_Told = Mapping[tuple[str, str], list[tuple[str | None, tuple[str, ...]]]]
"""What the kubelet gave to the containers of each Pod, as (Pod's uid, devices)."""


def _told(report: AgentReport) -> _Told:
    told: dict[tuple[str, str], list[tuple[str | None, tuple[str, ...]]]] = {}
    for entry in report.allocations or ():
        told.setdefault((entry.namespace, entry.pod), []).append((entry.pod_uid, entry.devices))
    return told


def _pod_gpus(machine: Machine, pod: Pod, told: _Told) -> tuple[int, ...]:
    """GPUs of one Pod: the kubelet's word once it covers what the Pod asked for, else its annotation with that word."""
    if not pod.gpus and pod.key not in told:
        return ()
    devices = [
        device for uid, given in told.get(pod.key, ()) if not (uid and pod.uid and uid != pod.uid) for device in given
    ]
    given = _indexes(machine, devices)
    # The annotation is worth something only on a Pod of ours: anybody can write one.
    named = _indexes(machine, pod.gpus) if pod.job_owner is not None else ()
    if given and len(given) >= max(pod.gpu_count, len(named)):
        return given
    return tuple(sorted({*given, *named}))


def _booked_gpus(machine: Machine, share: BookedShare, pod: Pod | None, told: _Told) -> tuple[int, ...]:
    if pod is not None:
        gpus = _pod_gpus(machine, pod, told)
        if gpus:
            return gpus
    there = {gpu.index for gpu in machine.gpus}
    return tuple(sorted(index for index in share.gpus if index in there))


def _indexes(machine: Machine, uuids: Sequence[str]) -> tuple[int, ...]:
    """NVML indexes of the GPUs of this machine among `uuids`, ascending."""
    if not uuids:
        return ()
    wanted = set(uuids)
    return tuple(gpu.index for gpu in machine.gpus if gpu.uuid in wanted)


def _holder(pod: Pod) -> Holder:
    job = pod.job
    if job is not None:
        return Holder(HolderKind.JOB, job.namespace, job.name)
    return Holder(HolderKind.POD, pod.namespace, pod.name)


def any_of(pods: Sequence[Pod]) -> Holder:
    """The holder of a GPU that one of these Pods has, nobody knows which; there is at least one, by key."""
    first, *others = pods
    return Holder(HolderKind.POD, first.namespace, first.name, tuple(pod.key for pod in others))
