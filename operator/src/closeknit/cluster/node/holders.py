"""Holders of each GPU of one node: from bookings, live Pods, claims and the kubelet's report.

A GPU is in use when any of them says so. Of one Pod the kubelet's report is believed first (its devices never change
while it lives), by the node's agent or, where that cannot ask, in the Pod's status; then, where the Pod stands for a
share of a booking, the booking. No word of a Pod about itself counts but what it requests, which never changes:
labels, annotations, owners and affinity are anybody's to write; its status is the kubelet's.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from closeknit.api.names import POD_COUNT, JobKey, Role, child_name
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.node.node import Holder, HolderKind
from closeknit.cluster.objects.agent_report import AgentReport
from closeknit.cluster.objects.pod_requests import Needs
from closeknit.cluster.pods.pod import Pod
from closeknit.machine.graph import Machine


@dataclass(frozen=True, slots=True)
class BookedShare:
    """One job's booking on one node."""

    node: str
    job: JobKey
    role: Role
    index: int
    """The index of its Pod within its role."""
    uid: str
    """The job's; empty if unknown."""
    attempt: int
    gpus: tuple[int, ...]
    binding: Binding
    needs: Needs
    """Its Pod's needs besides GPUs."""
    mig_device: str = ""
    """UUID of its MIG device in place of GPUs; empty without one."""
    mig_resource: str = ""
    """The resource that its Pod then requests from a device plugin."""
    nics: tuple[str, ...] = ()
    """NICs that its Pod claims for itself, as name:port."""
    has_functions: bool = False
    """Whether its Pod gets one of each resource of the node's SR-IOV functions, if it requests none."""
    takes_any: bool = False
    """Whether a device plugin may have given it GPUs that are joined differently from the booked ones."""
    replacement: int = 0
    """How many Pods had its place before, which is part of its Pod's name."""
    is_spare: bool = False
    """Whether no Pod stands for it: it is to take the place of a lost share, and may be lent until then."""

    @property
    def pod_key(self) -> tuple[str, str]:
        """Namespace and name of the Pod to stand for it."""
        return self.job.namespace, child_name(self.job.name, self.attempt, self.role, self.index, self.replacement)

    def is_of(self, pod: Pod) -> bool:
        """Whether the Pod of that key stands for it: not a namesake of another owner, nor one with another request or
        place."""
        return any(owner.is_job(self.uid) for owner in pod.owners) and pod.is_made_for(
            self.node, len(self.gpus), self.binding, mig=self.mig_resource
        )


@dataclass(frozen=True, slots=True)
class Holding:
    """The held parts of a node."""

    holders: Mapping[int, Holder]
    """By NVML index, ascending."""
    requested: int
    """GPUs of the device plugin in use: by Pods, and by bookings whose Pod is not bound yet."""
    unexplained: tuple[Pod, ...]
    """Pods with unknown GPUs, by key."""
    unnamed: Mapping[Holder, int]
    """Number of unknown GPUs of each holder: such Pods, and jobs whose booked GPUs are another's."""
    guessed: tuple[tuple[int, ...], ...]
    """The indexes in `holders`, ascending, of each share whose GPUs a device plugin chose without confirmation: the
    booked ones, one by one where it is unknown how the real ones are joined."""
    taken: Mapping[str, int]
    """Every resource in use, places for Pods included: by Pods, and by bookings whose Pod is not bound yet."""


Told = Mapping[tuple[str, str], list[tuple[str | None, tuple[str, ...]]]]
"""The kubelet's devices of each Pod's containers, as (Pod's uid, devices)."""


def holding(
    machine: Machine,
    report: AgentReport,
    bookings: Sequence[tuple[BookedShare, Pod | None]],
    pods: Sequence[Pod],
    claimed: Iterable[tuple[str, Holder]],
) -> Holding:
    """The held parts of one node.

    `bookings` come with the Pod that stands for each once one is bound; `pods` are the live ones on the node, by key;
    `claimed` are (uuid, claim) by claim. What a device plugin was only foreseen to choose gives way to what is known.
    """
    found = _Found(machine, told_of(report))
    for share, pod in bookings:
        found.book(share, pod)
    for pod in pods:
        found.ask(pod)
    for uuid, claim in claimed:
        found.hold(_indexes(machine, (uuid,)), claim)
    found.guess()
    return Holding(
        holders=dict(sorted(found.holders.items())),
        requested=found.requested,
        unexplained=tuple(found.unexplained),
        unnamed=found.unnamed,
        guessed=tuple(sorted(found.guessed)),
        taken=found.taken,
    )


class _Found:
    """The held parts of one node, as far as read."""

    def __init__(self, machine: Machine, told: Told) -> None:
        self._machine = machine
        self._told = told
        self.holders: dict[int, Holder] = {}
        self.requested = 0
        self.unexplained: list[Pod] = []
        self.unnamed: dict[Holder, int] = {}
        self.guessed: list[tuple[int, ...]] = []
        self.taken: dict[str, int] = {}
        self._foreseen: list[tuple[Holder, tuple[int, ...], bool]] = []
        """Of jobs what a plugin was foreseen to choose, and whether it may have chosen any."""
        self._named: dict[tuple[str, str], int] = {}
        """How many GPUs of a Pod its booking has."""

    def hold(self, gpus: Iterable[int], holder: Holder) -> None:
        for index in gpus:
            self.holders.setdefault(index, holder)

    def book(self, share: BookedShare, pod: Pod | None) -> None:
        """The kubelet's devices once they cover the share, else the booked indexes with those."""
        given = () if pod is None else _pod_gpus(self._machine, pod, self._told)
        there = () if len(given) >= len(share.gpus) else _there(self._machine, share.gpus, given)
        holder = Holder(HolderKind.JOB, share.job.namespace, share.job.name)
        self.hold(given, holder)
        if share.binding is not Binding.BEST_EFFORT:
            self.hold(there, holder)
        elif there:
            self._foreseen.append((holder, there, share.takes_any or bool(given)))
        if pod is not None:
            self._named[pod.key] = len(given) + len(there)
            return
        self.requested += 0 if share.binding is Binding.DRA else len(share.gpus)
        for resource, amount in share.needs:
            self.taken[resource] = self.taken.get(resource, 0) + amount

    def ask(self, pod: Pod) -> None:
        """A Pod's requests."""
        holder = Holder(HolderKind.POD, pod.namespace, pod.name)
        count, named = pod.gpu_count, self._named.get(pod.key, 0)
        # Of a Pod that asks no plugin the kubelet tells what its claims gave it, an admin's too, which hold nothing: of
        # those `claimed` knows. The agent itself has all GPUs of its node in that way.
        if count and not named:
            gpus = _pod_gpus(self._machine, pod, self._told)
            named = len(gpus)
            self.hold(gpus, holder)
        self.requested += count
        if count > named:
            self.unexplained.append(pod)
            self.unnamed[holder] = count - named
        self.taken[POD_COUNT] = self.taken.get(POD_COUNT, 0) + 1
        for resource, amount in pod.requests.items():
            self.taken[resource] = self.taken.get(resource, 0) + amount

    def guess(self) -> None:
        """The prediction, where no other holder is known."""
        for holder, booked, is_any in self._foreseen:
            own = tuple(index for index in booked if index not in self.holders)
            self.hold(own, holder)
            others = len(booked) - len(own)
            if others:
                self.unnamed[holder] = self.unnamed.get(holder, 0) + others
            self.guessed += [(index,) for index in own] if is_any or others else [own]


def told_of(report: AgentReport) -> Told:
    """The kubelet's devices of each Pod's containers on a node, as far as its agent reports."""
    told: dict[tuple[str, str], list[tuple[str | None, tuple[str, ...]]]] = {}
    for entry in report.allocations or ():
        told.setdefault((entry.namespace, entry.pod), []).append((entry.pod_uid, entry.devices))
    return told


def _pod_gpus(machine: Machine, pod: Pod, told: Told) -> tuple[int, ...]:
    return _indexes(machine, devices_of(pod, told))


def devices_of(pod: Pod, told: Told) -> Sequence[str]:
    """UUIDs of one Pod's devices by the kubelet: as its agent reports, else from its status."""
    if pod.key not in told:
        return pod.devices
    return [device for uid, found in told[pod.key] if not (uid and pod.uid and uid != pod.uid) for device in found]


def _there(machine: Machine, booked: Sequence[int], given: Sequence[int]) -> tuple[int, ...]:
    """The booked indexes that the machine has, ascending, without the given ones."""
    there = {gpu.index for gpu in machine.gpus}
    return tuple(sorted(index for index in booked if index in there and index not in given))


def _indexes(machine: Machine, uuids: Sequence[str]) -> tuple[int, ...]:
    """NVML indexes of the GPUs of this machine among `uuids`, ascending."""
    if not uuids:
        return ()
    wanted = set(uuids)
    return tuple(gpu.index for gpu in machine.gpus if gpu.uuid in wanted)


def any_of(pods: Sequence[Pod]) -> Holder:
    """The holder of a GPU that one of these Pods has, unknown which; there is at least one, by key."""
    return one_of([Holder(HolderKind.POD, pod.namespace, pod.name) for pod in pods])


def one_of(holders: Iterable[Holder]) -> Holder:
    """The same for holders, in their order."""
    first, *others = holders
    return first._replace(or_pods=tuple((each.namespace, each.name) for each in others))
