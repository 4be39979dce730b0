"""One Pod of a gang: its role, its place, its GPUs."""

from dataclasses import dataclass

from closeknit.api.clustertopology import SriovNetwork
from closeknit.api.names import CLAIMED_PREFIX, GKE_NETWORK_PREFIX, GPU_DRA_DRIVER, GPU_RESOURCE, Role
from closeknit.api.nodetopology import Transport
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.objects.kubelet import UNTOLD, KubeletPolicies
from closeknit.cluster.objects.nic_exposure import NicExposure, nic_exposure
from closeknit.launch.cloud_platforms import Platform


@dataclass(frozen=True, slots=True)
class Member:
    """One Pod of the gang. A worker has all the gang's GPUs of its node; members of other roles run on CPUs alone."""

    node: str
    index: int
    """Among the members of its role, from 0; of a worker its node rank."""
    uuids: tuple[str, ...] = ()
    """GPUs in local-rank order, one for each rank, or the MIG device; empty strings where the machine does not tell."""
    first_rank: int = 0
    """Global rank of the first GPU; ranks are contiguous."""
    binding: Binding | None = None
    """How the GPUs are bound to the Pod; None where it has none."""
    gpu_resource: str = GPU_RESOURCE
    """What it asks a device plugin for."""
    device_class: str = GPU_DRA_DRIVER
    """DeviceClass of what its claim asks for."""
    cpus: int | None = None
    """Whole CPUs that its trainer is given; None where its template says, or nothing would be gained."""
    lowest_gpu: int = 0
    """The lowest NVML index among its GPUs, which no other gang has on this node."""
    nics: tuple[str, ...] = ()
    """RDMA NICs of these ranks as name:port; empty where the gang does not use RDMA."""
    rdma_resource: str | None = None
    """The node's resource that exposes the NICs, for example rdma/hca_shared_devices_a; of several networks one."""
    networks: tuple[str, ...] = ()
    """The node's GKE networks: its Pod gets all of them, if it gets NICs by them."""
    functions: tuple[SriovNetwork, ...] = ()
    """Networks of SR-IOV functions, by resource: its Pod gets one function of each, if it gets NICs by them."""
    nic_addresses: tuple[str, ...] = ()
    """PCI addresses of the NICs that its Pod claims for itself, as their driver spells them; empty where they come in
    other ways."""
    transport: Transport | None = None
    """Transport of the NICs."""
    usable: frozenset[Transport] = frozenset()
    """Transports of all the node's NICs that NCCL could use, whether its Pod gets them or not."""
    offered: NicExposure | None = None
    """How the node offers NICs to Pods, whether this one gets them or not."""
    platform: Platform | None = None
    kubelet: KubeletPolicies = UNTOLD
    """What that of its node promises of CPUs and memory."""
    hides_levels: bool = False
    """Whether the node's machine is not believed what it shows of distances between GPUs and NICs."""
    has_c2c: bool = False
    """Whether its GPUs reach their CPU by NVLink-C2C."""
    has_data_direct: bool = False
    """Whether its NICs reach its GPUs through functions of their own beside these (ConnectX-8)."""
    nvlink_domain: str | None = None
    """The node's multi-node NVLink domain, as NCCL would find it."""
    clique_told: tuple[str, str] | None = None
    """The label of that domain and what NVML says of it, where they differ."""
    has_most_gpus: bool = False
    """Whether it has as many of its node's GPUs as a Pod with an IMEX channel takes: all, or where the site shares
    trays more than half."""
    role: Role = Role.WORKER
    replacement: int = 0
    """How many Pods had its place in the attempt before it."""

    @property
    def nic_resources(self) -> tuple[str, ...]:
        """The resources that its Pod gets its NICs by; none where it claims them."""
        if self.rdma_resource is None or self.nic_addresses:
            return ()
        if nic_exposure(self.rdma_resource) is NicExposure.GKE:
            return tuple(f"{GKE_NETWORK_PREFIX}{network}" for network in self.networks)
        if self.has_functions:
            return tuple(each.resource for each in self.functions)
        return (self.rdma_resource,)

    @property
    def has_functions(self) -> bool:
        """Whether its Pod gets its NICs by networks of SR-IOV functions."""
        return nic_exposure(self.rdma_resource or "") is NicExposure.SRIOV

    @property
    def is_claimed(self) -> bool:
        """Whether its Pod has a claim on devices."""
        return self.binding is Binding.DRA or bool(self.nic_addresses)

    @property
    def nic_class(self) -> str:
        """The DeviceClass that it claims its NICs by; empty where it claims none."""
        return (self.rdma_resource or "").removeprefix(CLAIMED_PREFIX) if self.nic_addresses else ""

    @property
    def rank_count(self) -> int:
        """Ranks of this Pod, which is its GPUs."""
        return len(self.uuids)
