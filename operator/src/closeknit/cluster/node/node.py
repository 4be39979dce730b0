"""One node for placement: its machine, its free parts, their holders, and why it may be excluded."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from closeknit.api.names import FUNCTION_PREFIX, GPU_RESOURCE, JobKey
from closeknit.api.reasons import ExclusionReason
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.immutable.table import EMPTY
from closeknit.cluster.objects.dranet import NicOffer
from closeknit.cluster.objects.kubelet import UNTOLD, KubeletPolicies
from closeknit.cluster.objects.nic_exposure import NicExposure, nic_exposure
from closeknit.cluster.objects.pod_requests import NO_AMOUNTS, Amounts
from closeknit.cluster.objects.silence import Silence
from closeknit.cluster.objects.taints_and_faults import Fault, FaultKind, Taint
from closeknit.machine.graph import Machine

# What an administrator sets on a node that is certainly off, and what frees its volumes and Pods at once.
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Why a whole node is excluded; the message is one clause, for example `last heartbeat 20 min ago`."""

    reason: ExclusionReason
    message: str
    since: str | None = None
    """For a Node that is not Ready: since when, by its condition."""
    has_no_gpus: bool = False
    """Whether nothing on the node offers GPUs, so that nothing is missing."""


class HolderKind(StrEnum):
    """Kinds of holders of a GPU; the value is its noun."""

    JOB = "job"  # a TrainingJob, by its booking
    POD = "Pod"
    CLAIM = "claim"


class Holder(NamedTuple):  # a tuple, because a refusal hashes one for every GPU that is held
    """The holder of a GPU.

    As text no more than `a job`, `a Pod`, `a claim`: who is told what holds a GPU may be a tenant who may not list the
    namespace of the holder, so that no message has a holder's name. Refusals count them.
    """

    kind: HolderKind
    namespace: str
    name: str
    or_pods: tuple[tuple[str, str], ...] = ()
    """Namespace and name of further Pods that may be the holder instead."""

    def may_be_of(self, job: JobKey) -> bool:
        """Whether the GPU may be held for the job: by its booking, or by any Pod or claim."""
        return self.kind is not HolderKind.JOB or (self.namespace, self.name) == job

    def __str__(self) -> str:
        return f"a {self.kind}"


@dataclass(frozen=True, slots=True)
class MigView:
    """One MIG device of a node."""

    uuid: str
    profile: str
    memory_bytes: int | None
    gpu: int
    """NVML index of its GPU."""
    binding: Binding
    """How a Pod gets it: DRA, or BestEffort, where the device plugin chooses within the profile."""
    fault: Fault | None
    """Why no Pod can get it."""
    holder: Holder | None
    """Its holder. Of devices counted by a plugin the last ones stand for those in unknown use."""

    @property
    def is_free(self) -> bool:
        """Whether a Pod can get it now."""
        return self.fault is None and self.holder is None


@dataclass(frozen=True, slots=True)
class MigDevices:
    """All MIG devices of one node, with the free ones at hand: every job with MIG asks every node."""

    devices: tuple[MigView, ...]
    free: Mapping[str, tuple[MigView, ...]] = field(init=False, compare=False, repr=False)
    """By profile; none for a profile in use."""

    def __post_init__(self) -> None:
        """Sorts them once for each change of the node."""
        found: dict[str, tuple[MigView, ...]] = {}
        for device in self.devices:
            if device.is_free:
                found[device.profile] = (*found.get(device.profile, ()), device)
        object.__setattr__(self, "free", found)


@dataclass(frozen=True, slots=True)
class PluginOffer:
    """GPUs that a device plugin hands out by count, and its known use."""

    allocatable: int
    capacity: int
    requested: int  # by live Pods of anybody
    unnamed: int  # of these, unknown ones
    shared: bool  # time-sliced, MPS or single-strategy MIG: one count is not one GPU
    is_replicated: bool = False  # shared, and each count is a replica of a whole GPU
    resource: str = GPU_RESOURCE  # what Pods ask for
    is_narrowed: bool = False  # the kubelet's Topology Manager lets it choose among some of the free GPUs alone

    @property
    def free(self) -> int:
        """How many GPUs the plugin can still hand out."""
        return max(0, self.allocatable - self.requested)


@dataclass(frozen=True, slots=True)
class RdmaOffer:
    """The resource of the node that gives a Pod NICs, by count: the first by name with a rest, else of all. For several
    networks the first, for SR-IOV functions the scarcest, under Multus' prefix."""

    resource: str
    free: int
    functions: tuple[str, ...] = ()
    """The node's resources of SR-IOV functions, if NICs come by these: a Pod gets one of each."""

    @property
    def exposure(self) -> NicExposure | None:
        """How the NICs come into the Pod."""
        return nic_exposure(self.resource)


def rdma_offer(allocatable: Amounts, spare: Amounts, declared: Collection[str] = ()) -> RdmaOffer | None:
    """A node's NICs by device plugins; None where Pods get none. `declared` are resources of SR-IOV functions."""
    found: dict[NicExposure, list[RdmaOffer]] = {}
    for resource, amount in spare.items():
        kind = nic_exposure(resource)
        if kind is not None and allocatable.get(resource, 0) > 0:
            found.setdefault(kind, []).append(RdmaOffer(resource, amount))
    functions = tuple(sorted(resource for resource in declared if allocatable.get(resource, 0) > 0))
    if functions:
        scarcest = min(functions, key=lambda resource: (spare.get(resource, 0), resource))
        offer = RdmaOffer(f"{FUNCTION_PREFIX}{scarcest}", spare.get(scarcest, 0), functions)
        found[NicExposure.SRIOV] = [offer]
    for kind in NicExposure:
        offers = found.get(kind)
        if offers and kind is NicExposure.GKE:  # a Pod is given all of them
            return RdmaOffer(min(offer.resource for offer in offers), min(offer.free for offer in offers))
        if offers:
            return min(offers, key=lambda offer: (offer.free == 0, offer.resource))
    return None


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node for placement. GPU indexes are NVML indexes of `machine`, ascending. Versions of the Cluster share
    it."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    domains: tuple[str | None, ...]
    """Domain at each level of Cluster.levels, as the path from the outermost level (`b1/r2/node-7`); equal text is the
    same domain. None where the node lacks the label of that level or of one outside it. The last is never None."""
    exclusion: Exclusion | None
    """A reason that holds for every job (all but Tainted, which depends on the job's tolerations)."""
    machine: Machine | None
    """None exactly where the node has no valid NodeTopology."""
    topology_generation: int
    usable: tuple[int, ...]
    """GPUs that are healthy and that a binding can reach."""
    free: tuple[int, ...]
    """GPUs of `usable` without a known holder; of replicated ones all, while one replica is left."""
    holders: Mapping[int, Holder]
    """Holders of GPUs, by NVML index, ascending. Holders in `unnamed` hold others."""
    unusable: Mapping[int, Fault]
    """Why a GPU of the machine is not usable, by NVML index, ascending."""
    dra: bool
    """Whether a complete pool of gpu.nvidia.com ResourceSlices names the GPUs by uuid."""
    plugin: PluginOffer | None
    """The device plugin's offer; None without one."""
    rdma: RdmaOffer | None
    memlock_bytes: int | None = None
    """Memory that containers may lock, -1 for unlimited; None if unknown."""
    kubelet: KubeletPolicies = UNTOLD
    hides_levels: bool = False
    """Whether its agent distrusts the machine's PCIe levels, as in virtual machines without a tree."""
    allocatable: Amounts | None = None
    """Everything that Pods can have of it, by resource; None if unknown and irrelevant: without a machine, and where
    the input holds no Nodes."""
    spare: Amounts | None = None
    """The rest of that for one more Pod; without GPUs, which are placed one by one."""
    mig: tuple[MigView, ...] = ()
    """Its MIG devices, by GPU and uuid."""
    nics: NicOffer | None = None
    """Its NICs that Pods can claim one by one; None without any."""
    unnamed: Mapping[Holder, int] = EMPTY
    """Number of GPUs of the device plugin for each holder where it is unknown which of `free` they are."""
    guessed: tuple[tuple[int, ...], ...] = ()
    """Indexes in `holders`, by share, that the device plugin is not confirmed to have chosen."""
    restarts_in_place: bool = False
    """Whether its kubelet starts all containers of a Pod again by a rule of one of them."""
    asks_kubelet: bool = False
    """Whether its agent asks the kubelet for the holders of GPUs, and reports within seconds."""
    silence: Silence | None = None
    """How long neither its kubelet nor its agent has been heard; None while they are."""
    is_there: bool = True
    """Whether it has a Node, or the input has none at all."""
    is_ready: bool = True
    """Whether the Ready condition of its Node is True."""
    is_unheard: bool = False
    """Whether it is Unknown, so that Kubernetes has not heard its kubelet either."""
    spare_for: str = ""
    """The queue whose spare node it is; empty of any other node."""

    @property
    def open_gpus(self) -> int:
        """Number of GPUs that jobs can start on: all that are to give out, but for a node that takes no jobs, and for
        one that is kept to take the place of another."""
        return 0 if self.exclusion is not None or self.spare_for else self.free_gpus

    @property
    def is_out_of_service(self) -> bool:
        """Whether an administrator has said that it is certainly off."""
        return any(taint.key == OUT_OF_SERVICE for taint in self.taints)

    @property
    def free_gpus(self) -> int:
        """Number of GPUs to give out: `free` less unnamed ones, and no more than a device plugin has left; 0 where it
        could give a broken GPU in place of an unknown one."""
        plugin = self.plugin
        if plugin is None or plugin.shared:
            return len(self.free)
        free = len(self.free) - plugin.unnamed
        return 0 if plugin.unnamed and plugin.free > free else max(0, min(plugin.free, free))

    @property
    def is_unoffered(self) -> bool:
        """Whether it has GPUs that a Pod could have, and neither a device plugin nor DRA gives Pods any."""
        if self.plugin is not None:
            return self.plugin.allocatable == 0 and bool(self.usable)
        return any(fault.kind is FaultKind.NOT_OFFERED for fault in self.unusable.values())

    def without(self, uuids: Collection[str]) -> "NodeView":
        """The node as if these GPUs and MIG devices could not be given out."""
        fault = Fault(FaultKind.AVOIDED)
        gpus = () if self.machine is None else self.machine.gpus
        gone = {gpu.index: fault for gpu in gpus if gpu.uuid in uuids and gpu.index not in self.unusable}
        return replace(
            self,
            usable=tuple(index for index in self.usable if index not in gone),
            free=tuple(index for index in self.free if index not in gone),
            unusable=dict(sorted({**self.unusable, **gone}.items())),
            mig=tuple(
                replace(device, fault=device.fault or fault) if device.uuid in uuids else device for device in self.mig
            ),
        )

    def freed(self, gpus: Iterable[int], room: Amounts = NO_AMOUNTS) -> "NodeView":
        """The node as if these of its GPUs were free, and so much more of other resources; a holder of no other GPU has
        no NIC there either."""
        gone = frozenset(gpus)
        holders = {gpu: holder for gpu, holder in self.holders.items() if gpu not in gone}
        plugin = self.plugin and replace(self.plugin, requested=max(0, self.plugin.requested - len(gone)))
        free = tuple(gpu for gpu in self.usable if gpu not in holders)
        left = {(each.namespace, each.name) for each in holders.values()}
        losers = {(each.namespace, each.name) for gpu, each in self.holders.items() if gpu in gone} - left
        spare, rdma, nics = self.spare, self.rdma, self.nics and self.nics.freed(losers)
        if room and spare is not None and self.allocatable is not None:
            most = self.allocatable
            spare = {name: min(amount + room.get(name, 0), most.get(name, amount)) for name, amount in spare.items()}
            rdma = rdma and rdma_offer(most, spare, rdma.functions)
        rdma = RdmaOffer(nics.resource, nics.free) if nics else rdma
        guessed = tuple(kept for share in self.guessed if (kept := tuple(gpu for gpu in share if gpu not in gone)))
        changed = replace(self, free=free, holders=holders, plugin=plugin, rdma=rdma, nics=nics, spare=spare)
        return replace(changed, guessed=guessed) if guessed != self.guessed else changed
