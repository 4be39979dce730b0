"""Raw readings of one machine: what NVML, sysfs and the kernel's files said, before anybody draws a conclusion.

Numbers are NVML's own enums and units, strings are as the kernel prints them. A fact that could not be read is None,
and `errors` of the struct that lacks it says why: field name -> NVML's error name (`NotSupported`, `GpuIsLost`) or the
errno's (`EACCES`). A dump file holds exactly these structs.
"""

import msgspec


class Reading(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of all readings: frozen, and strict about unknown fields, so that a dump is never half understood."""


class LinkReading(Reading, frozen=True):
    """One NVLink of one GPU."""

    link: int
    p2p: bool | None = None  # capability P2P_SUPPORTED
    state: int | None = None  # 0 inactive, 1 active, 2 sleep, 3 active with traffic disabled
    remote_type: int | None = None  # 0 GPU, 1 IBMNPU, 2 switch, 255 unknown
    remote_bus_id: str | None = None  # as NVML prints it; FFFFFFFF:FF:FF.0 where the remote end is hidden
    version: int | None = None  # NVML's enum, not the generation: 6 is NVLink 4
    speed_mb_s: int | None = None
    was_up: bool = False  # of a link that is down: it was up under this driver; no source says so, only memory
    errors: dict[str, str] = {}


class FabricReading(Reading, frozen=True):
    """Registration of one GPU with the NVLink fabric (Hopper and later)."""

    state: int  # 0 not supported, 1 not started, 2 in progress, 3 completed
    status: int  # nvmlReturn_t, valid when state is 3
    cluster_uuid: str  # 32 hexadecimal digits; all zero on machines that cannot join a multi-node domain
    clique_id: int
    health_mask: int | None = None
    health_summary: int | None = None  # 0 not supported, 1 healthy, 2 unhealthy, 3 limited capacity


class MigDeviceReading(Reading, frozen=True):
    """One MIG device."""

    uuid: str | None = None
    name: str | None = None  # ends in "MIG 1g.18gb"
    memory_mib: int | None = None
    errors: dict[str, str] = {}


class HealthReading(Reading, frozen=True):
    """How one GPU is, as its counters and states say."""

    recovery_action: int | None = None  # nvmlDeviceGpuRecoveryAction_t: 0 none, 1 reset, 2 reboot, 3 drain P2P, …
    rows_pending: bool | None = None  # memory rows wait for a reset to be replaced
    rows_failed: bool | None = None  # a memory row could not be replaced
    uncorrected_ecc: int | None = None  # since the driver was loaded
    clocks_event_reasons: int | None = None  # bits of nvmlClocksEventReasons
    link_errors: int | None = None  # times that any NVLink had to be retrained; its failures from Blackwell on
    pids: tuple[int, ...] | None = None  # that compute on it, of the host; None where the host's cannot be seen
    errors: dict[str, str] = {}


class XidReading(Reading, frozen=True):
    """One XID event since the reading before."""

    xid: int
    uuid: str | None = None  # of the GPU
    errors: dict[str, str] = {}


class GpuReading(Reading, frozen=True):
    """One GPU. An error under `handle` means that it does not answer, or stopped to while it was read."""

    index: int
    uuid: str | None = None
    name: str | None = None
    bus_id: str | None = None  # 00000000:1A:00.0
    minor: int | None = None
    architecture: int | None = None  # NVML_DEVICE_ARCH_*: 5 Volta, 7 Ampere, 9 Hopper
    compute_capability: tuple[int, int] | None = None
    memory_bytes: int | None = None
    module_id: int | None = None
    max_pcie_generation: int | None = None
    max_pcie_width: int | None = None
    virtualization_mode: int | None = None  # 0 none, 1 passthrough, 2 guest vGPU, 3 and 4 host
    mig_mode: tuple[int, int] | None = None  # current, pending
    mig_devices: tuple[MigDeviceReading, ...] = ()
    c2c_links: int | None = None
    c2c_link_mb_s: int | None = None
    fabric: FabricReading | None = None
    links: tuple[LinkReading, ...] = ()
    health: HealthReading | None = None
    errors: dict[str, str] = {}


class PairReading(Reading, frozen=True):
    """Two GPUs, a < b by NVML index."""

    a: int
    b: int
    common_ancestor: int | None = None  # NVML_TOPOLOGY_*: 0 internal, 10, 20, 30, 40, 50 system
    p2p_nvlink: int | None = None  # nvmlGpuP2PStatus_t: 0 is OK
    p2p_read: int | None = None
    errors: dict[str, str] = {}


class PciReading(Reading, frozen=True):
    """One PCI device of interest: GPUs, NVSwitches, network and capture cards, what carries an RDMA device, and the DMA
    functions of network cards."""

    address: str  # 0000:1a:00.0
    path: str  # resolved, its parents are the bridges above: /sys/devices/pci0000:00/0000:00:01.0/0000:1a:00.0
    vendor: str | None = None  # 0x10de
    device: str | None = None
    device_class: str | None = None  # 0x030200
    numa_node: int | None = None  # -1 where the firmware does not say
    max_link_width: int | None = None  # lanes of the device itself, whatever the slot has; only of what carries RDMA
    card_uuid: str | None = None  # of a DMA function: what all functions of its card share; only root may read it
    errors: dict[str, str] = {}


class RdmaPortReading(Reading, frozen=True):
    """One port of an RDMA device, as its files print it."""

    port: int
    state: str | None = None  # "4: ACTIVE"
    link_layer: str | None = None  # InfiniBand or Ethernet
    rate: str | None = None  # "400 Gb/sec (4X NDR)"
    # Of an Ethernet port, the types and the network interfaces that its GIDs have, each once: "RoCE v2", eth0 or bond0.
    gid_types: tuple[str, ...] | None = None
    gid_netdevs: tuple[str, ...] = ()
    errors: dict[str, str] = {}


class RdmaReading(Reading, frozen=True):
    """One device of /sys/class/infiniband."""

    name: str
    address: str | None = None  # of its PCI function, or of the one that a scalable function is a part of
    node_type: str | None = None  # "1: CA"
    board_id: str | None = None  # the firmware's id of the board, which NVIDIA calls PSID: MT_0000000838
    driver: str | None = None  # mlx5_core, efa, irdma
    netdevs: tuple[str, ...] = ()
    netdev_ports: dict[str, int] = {}  # network interface -> its dev_port, which counts the ports from 0
    is_virtual_function: bool = False
    is_scalable_function: bool = False  # on the auxiliary bus, no PCI function itself
    physical_address: str | None = None  # of the function whose wire a virtual or scalable function shares
    is_software: bool = False  # rxe or siw on any network card
    is_switch_management: bool | None = None  # its vital product data, which only root may read, say SW_MNG
    card_uuid: str | None = None  # likewise: what all functions of a ConnectX share
    ports: tuple[RdmaPortReading, ...] = ()
    errors: dict[str, str] = {}


class CpuReading(Reading, frozen=True):
    """The first CPU, as /proc/cpuinfo prints it, and how many sockets have one; other architectures, other lines."""

    vendor: str | None = None  # x86, vendor_id: GenuineIntel
    family: int | None = None  # x86
    model: int | None = None  # x86: 143 is Sapphire Rapids
    implementer: str | None = None  # Arm: 0x41 is Arm itself
    part: str | None = None  # Arm: 0xd4f is Neoverse V2
    power: str | None = None  # POWER, the line `cpu`: "POWER9, altivec supported"
    sockets: int | None = None
    errors: dict[str, str] = {}


class KernelReading(Reading, frozen=True):
    """Files of the kernel, the firmware and drivers."""

    boot_id: str | None = None  # the kernel's, of this start of the machine
    nvidia_load: int | None = None  # inode of /sys/module/nvidia, new with each load
    nvidia_version: str | None = None  # first line of /proc/driver/nvidia/version
    nvidia_fs_version: str | None = None
    has_peer_memory: bool | None = None  # nvidia_peermem, or its predecessor
    rdma_netns_mode: str | None = None  # parameter of ib_core: Y is shared
    kernel_release: str | None = None
    cpu_model: str | None = None  # x86, the line `model name`
    cpu: CpuReading = CpuReading()
    has_hypervisor: bool | None = None  # the CPU says so; only x86 can
    system_vendor: str | None = None
    product_name: str | None = None
    memlock_bytes: int | None = None  # limit that this process inherited; -1 is unlimited
    has_imex_channels: bool | None = None  # the driver offers them to multi-node NVLink
    topology_manager_policy: str | None = None  # these by the kubelet's configuration file
    cpu_manager_policy: str | None = None
    memory_manager_policy: str | None = None
    errors: dict[str, str] = {}


class DriverReading(Reading, frozen=True):
    """What the driver says of itself. A survey answers with these facts, and each reading has and remembers them."""

    driver_version: str | None = None
    cuda_version: int | None = None  # 12040 is 12.4


DRIVER_FACTS = DriverReading.__struct_fields__


class Readings(DriverReading, frozen=True):
    """One machine."""

    gpus: tuple[GpuReading, ...] = ()
    pairs: tuple[PairReading, ...] = ()
    pci: tuple[PciReading, ...] = ()
    lists_capture_cards: bool = False  # `pci` has them if there are any; earlier agents did not look
    rdma: tuple[RdmaReading, ...] = ()
    kernel: KernelReading = KernelReading()
    xids: tuple[XidReading, ...] = ()
    suspect: int | None = None  # index of the GPU that was asked when the driver stopped to answer at all
    errors: dict[str, str] = {}


UP_STATES = (1, 2)  # active, and sleep: a link that saves power is a good link


DOWN_STATES = (0, 3)  # inactive, and active with its traffic disabled


CHANGES = "Changes"  # error of a fact that is another one each time it is asked
