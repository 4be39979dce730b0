"""Machine profiles: one short description of a machine model, as its file gives it."""

from typing import Any, Literal

import msgspec

GPU = "gpu"  # the word for a GPU in a profile's PCIe tree
DISPLAY = "display"  # and for one that only drives a screen, which NVML numbers among the others
# Of a name in the tree: the DMA function of that NIC, which NCCL calls so, too (Data Direct).
DMA_SUFFIX = "_dma"
# A device, or a PCIe switch with the slots below it, which may be switches again.
Slot = str | list[Any]


class ProfileError(ValueError):
    """A profile or fault that does not exist or contradicts itself; the message is for a person."""


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Base of the parts of a profile file."""


class GpuModel(_Part, frozen=True):
    """What all GPUs of the machine are."""

    name: str
    architecture: int  # NVML_DEVICE_ARCH_*
    compute_capability: tuple[int, int]
    memory_mib: int
    pcie_generation: int
    pcie_width: int = 16
    mig: bool = False  # whether the model can do MIG


class NvlinkModel(_Part, frozen=True):
    """How the GPUs are joined."""

    version: int  # NVML's enum
    speed_mb_s: int = msgspec.field(name="speedMBps")
    pairs: dict[str, int] = {}  # "0-3": 2
    switches: int = 0
    links_per_gpu: int = msgspec.field(name="linksPerGPU", default=0)  # into the switches
    hidden: bool = False  # the switches are not in the PCI tree
    management: tuple[str, ...] = ()  # RDMA devices of the PCIe tree through which the switches are managed
    cpu_links: int = 0  # of each GPU into its POWER9 CPU
    fabric: Literal["none", "node", "rack"] = "none"  # state and uuid that Hopper and later report


class C2cModel(_Part, frozen=True):
    """NVLink-C2C between each GPU and its CPU."""

    links: int
    speed_mb_s: int = msgspec.field(name="speedMBps")


class NicModel(_Part, frozen=True):
    """What all RDMA NICs of the machine are."""

    link_layer: Literal["InfiniBand", "Ethernet", "Unspecified"]
    rate: str
    driver: Literal["mlx5_core", "efa"] = "mlx5_core"
    connectx: Literal[7, 8] = 7


class HostBridge(_Part, frozen=True):
    """One PCI root and what hangs below each of its ports."""

    numa: int  # -1 where the firmware does not say
    ports: list[Slot]
    domain: int = 0


class Profile(_Part, frozen=True):
    """One machine model, as its file under `profiles/` describes it."""

    name: str
    machine: str
    evidence: Literal["observed", "vendor documentation", "unverified"]
    notes: str
    driver_version: str
    cuda_version: int
    cpu_model: str
    gpu: GpuModel
    host_bridges: list[HostBridge]
    nvlink: NvlinkModel | None = None
    nic: NicModel | None = None
    c2c: C2cModel | None = None
    open_kernel_module: bool = True
    virtual: bool = False  # a virtual machine, whose devices hang straight on their root
    peers: bool = True  # whether GPUs below one root complex reach each other's memory


class Faults(_Part, frozen=True):
    """What is broken in one machine of the model."""

    dead_gpus: tuple[int, ...] = msgspec.field(name="deadGPUs", default=())
    links_down: tuple["LinkFault", ...] = ()
    lost_switches: tuple[int, ...] = ()  # numbered from 0
    mig_gpus: tuple[int, ...] = msgspec.field(name="migGPUs", default=())  # cut into their smallest devices
    nics_down: tuple[str, ...] = ()


class LinkFault(_Part, frozen=True):
    """A link that is down, named by one of its ends."""

    gpu: int
    link: int


NO_FAULTS = Faults()
