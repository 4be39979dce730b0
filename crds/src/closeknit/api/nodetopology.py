"""NodeTopology: one machine as its agent measured it.

Bandwidths are GB/s per direction; an unknown fact is absent, never zero.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from closeknit.api.wire import Label, PciAddress, Uuid, Wire

MAX_GPUS_PER_NODE = 64  # NVML's own bound on devices of one host
MAX_NICS_PER_NODE = 64
MAX_CAPTURE_DEVICES = 32
MAX_LINKS_PER_GPU = 36  # NVML_NVLINK_MAX_LINKS of driver 610 (Rubin)

GpuIndex = Annotated[int, Field(ge=0, lt=MAX_GPUS_PER_NODE)]
LinkCount = Annotated[int, Field(ge=0, le=MAX_LINKS_PER_GPU)]
Bandwidth = Annotated[float, Field(ge=0, le=100_000)]
NumaNode = Annotated[int, Field(ge=0, le=1023)]
PcieLevel = Annotated[str, StringConstraints(max_length=4)]


class Method(StrEnum):
    """How the machine was read."""

    NVML = "NVML"
    NVIDIA_SMI = "NvidiaSmi"
    RECORDED = "Recorded"
    SIMULATED = "Simulated"


class KernelModule(StrEnum):
    """Kind of NVIDIA's kernel module."""

    OPEN = "Open"
    PROPRIETARY = "Proprietary"


class Confidence(StrEnum):
    """How far a group of facts can be trusted."""

    HIGH = "High"
    LOW = "Low"


class MigMode(StrEnum):
    """MIG mode of one GPU."""

    DISABLED = "Disabled"
    ENABLED = "Enabled"


class Transport(StrEnum):
    """Transport of an RDMA NIC."""

    INFINIBAND = "InfiniBand"
    ROCE = "RoCE"
    EFA = "EFA"
    IWARP = "iWARP"


class PortState(StrEnum):
    """State of a NIC's port."""

    ACTIVE = "Active"
    DOWN = "Down"


class Support(StrEnum):
    """Whether GPUDirect RDMA works."""

    SUPPORTED = "Supported"
    LIKELY = "Likely"
    UNSUPPORTED = "Unsupported"


class RdmaNamespaces(StrEnum):
    """RDMA network-namespace mode of the kernel."""

    SHARED = "Shared"
    EXCLUSIVE = "Exclusive"


class Provenance(Wire):
    """Where the facts come from."""

    method: Method
    """NVML, NvidiaSmi, Recorded or Simulated."""
    driver_version: Label | None = None
    """Version of NVIDIA's driver."""
    cuda_version: Label | None = None
    """Highest CUDA version that the driver serves."""
    kernel_module: KernelModule | None = None
    """Open or Proprietary."""
    machine: Annotated[str, StringConstraints(max_length=128)] | None = None
    """Name of the machine model."""
    virtualized: bool | None = None
    """Whether the node is a virtual machine."""
    pcie_confidence: Confidence | None = None
    """Low where a hypervisor hides the PCIe tree, or where NVML and sysfs differ about it."""
    topology_confidence: Confidence | None = None
    """Low where NVLink had to be inferred, or where what was read of it contradicts itself."""


class MigDevice(Wire):
    """One MIG device."""

    uuid: Uuid
    """UUID of the MIG device."""
    profile: Label
    """Profile, for example 1g.18gb."""
    memory_bytes: Annotated[int, Field(ge=0)] | None = None
    """Memory in bytes."""


class Mig(Wire):
    """MIG state of one GPU."""

    mode: MigMode
    """Disabled or Enabled."""
    devices: Annotated[list[MigDevice], Field(max_length=64)] = []
    """MIG devices that exist."""


class C2C(Wire):
    """NVLink-C2C between a GPU and its CPU."""

    links: Annotated[int, Field(ge=0, le=64)]
    """Number of links."""
    bandwidth_gb_s: Annotated[Bandwidth | None, Field(alias="bandwidthGBps")] = None
    """Bandwidth of all links, in GB/s per direction."""


class Gpu(Wire):
    """One GPU; only index and pciAddress are required."""

    index: GpuIndex
    """NVML index; not stable over reboots."""
    uuid: Uuid | None = None
    """UUID of the GPU."""
    minor: Annotated[int, Field(ge=0, le=255)] | None = None
    """Minor number of /dev/nvidiaN."""
    pci_address: PciAddress
    """PCI address, for example 0000:18:00.0."""
    product: Label | None = None
    """Product, for example NVIDIA-H200."""
    architecture: Label | None = None
    """Architecture, for example Hopper."""
    compute_capability: Annotated[str, StringConstraints(max_length=8, pattern=r"^[0-9]+\.[0-9]+$")] | None = None
    """CUDA compute capability, for example 9.0."""
    memory_bytes: Annotated[int, Field(ge=0)] | None = None
    """Memory in bytes."""
    numa_node: NumaNode | None = None
    """NUMA node of the host that the GPU is attached to."""
    mig: Mig | None = None
    """MIG state."""
    nvlink_generation: Annotated[int, Field(ge=1, le=16)] | None = None
    """NVLink generation, where this GPU differs from the node's."""
    link_bandwidth_gb_s: Annotated[Bandwidth | None, Field(alias="linkBandwidthGBps")] = None
    """Bandwidth of one NVLink in GB/s per direction, where this GPU differs from the node's."""
    pcie_generation: Annotated[int, Field(ge=1, le=8)] | None = None
    """Highest PCIe generation of the GPU's slot."""
    pcie_width: Annotated[int, Field(ge=1, le=32)] | None = None
    """Highest PCIe width of the GPU's slot, in lanes."""
    c2c: Annotated[C2C | None, Field(alias="c2c")] = None
    """NVLink-C2C to the CPU."""


class NvlinkPair(Wire):
    """Direct links between two GPUs."""

    a: GpuIndex
    """Lower NVML index."""
    b: GpuIndex
    """Higher NVML index."""
    links: Annotated[int, Field(ge=1, le=MAX_LINKS_PER_GPU)]
    """Number of links."""


class NvlinkDomain(Wire):
    """Multi-node NVLink domain."""

    cluster_uuid: Annotated[Uuid, Field(alias="clusterUUID")]
    """Cluster UUID of the fabric."""
    clique_id: Annotated[int, Field(alias="cliqueID", ge=0, le=2**32 - 1)]
    """Clique inside the fabric."""


class Nvlink(Wire):
    """NVLink between the node's GPUs."""

    generation: Annotated[int, Field(ge=1, le=16)] | None = None
    """NVLink generation."""
    link_bandwidth_gb_s: Annotated[Bandwidth | None, Field(alias="linkBandwidthGBps")] = None
    """Bandwidth of one link, in GB/s per direction."""
    switched: bool = False
    """Whether the links end in NVSwitches, so that every GPU reaches every other at full speed."""
    links_per_gpu: Annotated[list[LinkCount], Field(alias="linksPerGPU", max_length=MAX_GPUS_PER_NODE)] = []
    """Links into switches that each GPU has, in the order of gpus; status.linksDown tells which of them are down."""
    pairs: Annotated[list[NvlinkPair], Field(max_length=2016)] = []
    """Direct links, a < b."""
    cpu_links_per_gpu: Annotated[list[LinkCount], Field(alias="cpuLinksPerGPU", max_length=MAX_GPUS_PER_NODE)] = []
    """Links to CPUs (POWER9) of each GPU, in the order of gpus."""
    domain: NvlinkDomain | None = None
    """Multi-node NVLink domain, where there is one."""


class Pcie(Wire):
    """PCIe distances between the node's GPUs."""

    levels: Annotated[list[Annotated[str, StringConstraints(max_length=384)]], Field(max_length=MAX_GPUS_PER_NODE)] = []
    """A row per GPU, in the order of gpus: X, PIX, PXB, PHB, NODE or SYS as nvidia-smi topo -m prints them."""
    cpu_model: Annotated[str, StringConstraints(max_length=128)] | None = None
    """Model of the CPU."""
    inter_socket_gb_s: Annotated[Bandwidth | None, Field(alias="interSocketGBps")] = None
    """Bandwidth between sockets that NCCL reckons with, in GB/s per direction."""


class Nic(Wire):
    """One port of an RDMA NIC."""

    name: Label
    """Name of the RDMA device, for example mlx5_0."""
    port: Annotated[int, Field(ge=1, le=255)] = 1
    """Port of the device. Default 1."""
    pci_address: PciAddress | None = None
    """PCI address."""
    numa_node: NumaNode | None = None
    """NUMA node."""
    transport: Transport | None = None
    """InfiniBand, RoCE, EFA or iWARP; absent where nobody could tell, as of a text of nvidia-smi."""
    state: PortState | None = None
    """Active or Down; absent where nobody could tell. A port of unknown transport or state carries no job's data."""
    rate_gb_per_s: Annotated[Bandwidth | None, Field(alias="rateGbps")] = None
    """Rate of the port in Gb/s (bits)."""
    netdev: Label | None = None
    """Network interface."""
    virtual_function: bool = False
    """Whether the device is an SR-IOV virtual function."""
    data_direct_address: PciAddress | None = None
    """PCI address of the function beside a GPU through which the NIC reaches GPU memory (Data Direct of ConnectX-8)."""
    gpu_levels: Annotated[list[PcieLevel], Field(max_length=MAX_GPUS_PER_NODE)] = []
    """PCIe level to each GPU, in the order of gpus, of the function that reaches GPU memory; absent if unknown."""


class CaptureDevice(Wire):
    """A GPUDirect Video capture card."""

    pci_address: PciAddress
    """PCI address."""
    product: Label | None = None
    """Product."""
    gpu_levels: Annotated[list[PcieLevel], Field(max_length=MAX_GPUS_PER_NODE)] = []
    """PCIe level to each GPU, in the order of gpus."""


class Capabilities(Wire):
    """What the node's kernel and drivers can do."""

    gpu_direct_rdma: Annotated[Support | None, Field(alias="gpuDirectRDMA")] = None
    """Supported, Likely or Unsupported."""
    gpu_direct_storage: bool | None = None
    """Whether nvidia-fs is loaded."""
    gpu_direct_p2p: Annotated[bool | None, Field(alias="gpuDirectP2P")] = None
    """Whether GPUs reach each other's memory."""
    gpu_direct_video: bool | None = None
    """Whether a capture card is there."""
    memlock_bytes: Annotated[int, Field(ge=-1)] | None = None
    """Limit of locked memory that containers inherit, in bytes; -1 is unlimited."""
    rdma_namespaces: RdmaNamespaces | None = None
    """Shared or Exclusive."""
    topology_manager_policy: Label | None = None
    """Topology Manager policy of the kubelet."""
    cpu_manager_policy: Label | None = None
    """CPU manager policy of the kubelet: with static, Guaranteed Pods have whole CPUs for themselves."""
    memory_manager_policy: Label | None = None
    """Memory manager policy of the kubelet: with Static, Guaranteed Pods have their memory on chosen NUMA nodes."""


class NodeTopologySpec(Wire):
    """What changes only with hardware or driver."""

    source: Provenance
    """Where the facts come from."""
    gpus: Annotated[list[Gpu], Field(max_length=MAX_GPUS_PER_NODE)]
    """GPUs, by NVML index."""
    nvlink: Nvlink = Nvlink()
    """NVLink between the GPUs."""
    pcie: Pcie = Pcie()
    """PCIe distances between the GPUs."""
    nics: Annotated[list[Nic], Field(max_length=MAX_NICS_PER_NODE)] | None = None
    """RDMA NICs; absent where nobody could look for them."""
    capture_devices: Annotated[list[CaptureDevice], Field(max_length=MAX_CAPTURE_DEVICES)] = []
    """GPUDirect Video capture cards."""
    capabilities: Capabilities = Capabilities()
    """What kernel and drivers can do."""
