"""Machines as `sysfs_tree` lays them out, with the PCIe part of what `nvidia-smi topo -m` prints on them.

Seen on the machine, unless its comment says otherwise: which NIC is how near to which GPU, and the NUMA nodes. Bus
numbers are the builder's own. Between GPUs, nvidia-smi prints NVLinks where there are some; `topo -p` has these words.
"""

from dataclasses import dataclass, replace

from harness.sysfs_tree import GPU, Device, HostBridge, Machine, Port, Rdma, nic, vital_product_data


@dataclass(frozen=True)
class Known:
    """A machine, and the rows of its GPUs: words to GPUs, then to NICs in the order of their names."""

    machine: Machine
    printed: str


ROCE = Port("Ethernet", "200 Gb/sec (4X HDR)", gids=(("IB/RoCE v1", "eth0"), ("RoCE v2", "eth0")))
AMD = (
    "vendor_id\t: AuthenticAMD\ncpu family\t: 23\nmodel\t\t: 49\n"
    "model name\t: AMD EPYC 7742 64-Core Processor\nflags\t\t: fpu\n"
)
GRACE = "BogoMIPS\t: 2000.00\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd4f\n"
POWER9 = "cpu\t\t: POWER9, altivec supported\nclock\t\t: 3800.000000MHz\nrevision\t: 2.3 (pvr 004e 1203)\n"
VIRTUAL_FUNCTION = "0x101e"
GUEST = Machine(()).cpu.replace("fpu", "fpu hypervisor")

# Eight NICs, one below the switch of each GPU, and two cards for storage on host bridges of their own.
DGX_H100 = Known(
    Machine(
        [
            HostBridge(0, [[GPU, nic("mlx5_0")]]),
            HostBridge(0, [replace(nic("mlx5_1"), functions=(nic("mlx5_2"),))]),
            HostBridge(0, [[GPU, nic("mlx5_3")]]),
            HostBridge(0, [[GPU, nic("mlx5_4")]]),
            HostBridge(0, [[GPU, nic("mlx5_5")]]),
            HostBridge(1, [[GPU, nic("mlx5_6")]]),
            HostBridge(1, [replace(nic("mlx5_7"), functions=(nic("mlx5_8"),))]),
            HostBridge(1, [[GPU, nic("mlx5_9")]]),
            HostBridge(1, [[GPU, nic("mlx5_10")]]),
            HostBridge(1, [[GPU, nic("mlx5_11")]]),
        ]
    ),
    """
    X    NODE NODE NODE SYS  SYS  SYS  SYS    PIX  NODE NODE NODE NODE NODE SYS  SYS  SYS  SYS  SYS  SYS
    NODE X    NODE NODE SYS  SYS  SYS  SYS    NODE NODE NODE PIX  NODE NODE SYS  SYS  SYS  SYS  SYS  SYS
    NODE NODE X    NODE SYS  SYS  SYS  SYS    NODE NODE NODE NODE PIX  NODE SYS  SYS  SYS  SYS  SYS  SYS
    NODE NODE NODE X    SYS  SYS  SYS  SYS    NODE NODE NODE NODE NODE PIX  SYS  SYS  SYS  SYS  SYS  SYS
    SYS  SYS  SYS  SYS  X    NODE NODE NODE   SYS  SYS  SYS  SYS  SYS  SYS  PIX  NODE NODE NODE NODE NODE
    SYS  SYS  SYS  SYS  NODE X    NODE NODE   SYS  SYS  SYS  SYS  SYS  SYS  NODE NODE NODE PIX  NODE NODE
    SYS  SYS  SYS  SYS  NODE NODE X    NODE   SYS  SYS  SYS  SYS  SYS  SYS  NODE NODE NODE NODE PIX  NODE
    SYS  SYS  SYS  SYS  NODE NODE NODE X      SYS  SYS  SYS  SYS  SYS  SYS  NODE NODE NODE NODE NODE PIX
    """,
)
# Four NUMA nodes per socket: the GPUs' are 3, 3, 1, 1, 7, 7, 5, 5; two levels of switches; storage on two more nodes.
DGX_A100_NPS4 = Known(
    Machine(
        [
            HostBridge(3, [[[GPU], [nic("mlx5_0")], [GPU], [nic("mlx5_1")]]]),
            HostBridge(1, [[[GPU], [nic("mlx5_2")], [GPU], [nic("mlx5_3")]]]),
            HostBridge(2, [replace(nic("mlx5_4"), functions=(nic("mlx5_5"),))]),
            HostBridge(7, [[[GPU], [nic("mlx5_6")], [GPU], [nic("mlx5_7")]]]),
            HostBridge(5, [[[GPU], [nic("mlx5_8")], [GPU], [nic("mlx5_9")]]]),
        ],
        AMD,
    ),
    """
    X    PXB  SYS  SYS  SYS  SYS  SYS  SYS    PXB  PXB  SYS  SYS  SYS  SYS  SYS  SYS  SYS  SYS
    PXB  X    SYS  SYS  SYS  SYS  SYS  SYS    PXB  PXB  SYS  SYS  SYS  SYS  SYS  SYS  SYS  SYS
    SYS  SYS  X    PXB  SYS  SYS  SYS  SYS    SYS  SYS  PXB  PXB  SYS  SYS  SYS  SYS  SYS  SYS
    SYS  SYS  PXB  X    SYS  SYS  SYS  SYS    SYS  SYS  PXB  PXB  SYS  SYS  SYS  SYS  SYS  SYS
    SYS  SYS  SYS  SYS  X    PXB  SYS  SYS    SYS  SYS  SYS  SYS  SYS  SYS  PXB  PXB  SYS  SYS
    SYS  SYS  SYS  SYS  PXB  X    SYS  SYS    SYS  SYS  SYS  SYS  SYS  SYS  PXB  PXB  SYS  SYS
    SYS  SYS  SYS  SYS  SYS  SYS  X    PXB    SYS  SYS  SYS  SYS  SYS  SYS  SYS  SYS  PXB  PXB
    SYS  SYS  SYS  SYS  SYS  SYS  PXB  X      SYS  SYS  SYS  SYS  SYS  SYS  SYS  SYS  PXB  PXB
    """,
)
# NUMA nodes against the order of the GPUs, one socket. Its NICs are no verbs devices.
POLARIS = Known(
    Machine([HostBridge(numa, [GPU]) for numa in (3, 2, 1, 0)], AMD, sockets=1),
    """
    X   SYS SYS SYS
    SYS X   SYS SYS
    SYS SYS X   SYS
    SYS SYS SYS X
    """,
)
# Two Grace, every device in a PCI domain of its own. nvidia-smi printed SYS from every GPU to every NIC; what sysfs
# says of their NUMA nodes there is not known: here it says nothing of the NICs'.
GB200_TRAY = Known(
    Machine(
        [
            HostBridge(-1, [nic("mlx5_0")], domain=0),
            HostBridge(-1, [nic("mlx5_1")], domain=2),
            HostBridge(0, [GPU], domain=8),
            HostBridge(0, [GPU], domain=9),
            HostBridge(-1, [nic("mlx5_4")], domain=0x10),
            HostBridge(-1, [nic("mlx5_5")], domain=0x12),
            HostBridge(1, [GPU], domain=0x18),
            HostBridge(1, [GPU], domain=0x19),
        ],
        GRACE,
    ),
    """
    X    NODE SYS  SYS    SYS SYS SYS SYS
    NODE X    SYS  SYS    SYS SYS SYS SYS
    SYS  SYS  X    NODE   SYS SYS SYS SYS
    SYS  SYS  NODE X      SYS SYS SYS SYS
    """,
)
CONNECTX_8, DMA_FUNCTION = "0x1023", "0x2100"


def connectx_8(name: str) -> Device:
    """The NIC of a ConnectX-8 whose vital product data can be read."""
    card = nic(name, (Port(rate="800 Gb/sec (4X XDR)"),), device=CONNECTX_8)
    return replace(card, vpd=vital_product_data(f"c8280z{name}"))


def dma_function(name: str) -> Device:
    """The other function of that card."""
    return Device("0x15b3", DMA_FUNCTION, "0x088000", vpd=vital_product_data(f"c8280z{name}"))


# Not what nvidia-smi prints, which knows of no Data Direct. Pairs and addresses are those of an output of rdma_topo in
# NVIDIA's GPUDirect RDMA guide for Grace Blackwell with ConnectX-8: NIC 0000:03:00.0 and GPU 0009:06:00.0, 0002:03:00.0
# and 0008:06:00.0, 0010:03:00.0 and 0019:06:00.0. The fourth pair is what is left. Between GPUs as on a GB200 tray.
GB300_TRAY = Known(
    Machine(
        [
            HostBridge(0, [[connectx_8("mlx5_0")]], domain=0),
            HostBridge(0, [[connectx_8("mlx5_1")]], domain=2),
            HostBridge(0, [[dma_function("mlx5_1"), [GPU]]], domain=8),
            HostBridge(0, [[dma_function("mlx5_0"), [GPU]]], domain=9),
            HostBridge(1, [[connectx_8("mlx5_2")]], domain=0x10),
            HostBridge(1, [[connectx_8("mlx5_3")]], domain=0x12),
            HostBridge(1, [[dma_function("mlx5_3"), [GPU]]], domain=0x18),
            HostBridge(1, [[dma_function("mlx5_2"), [GPU]]], domain=0x19),
            # For storage and the front end: a card without Data Direct is where it stands.
            HostBridge(0, [nic("mlx5_4", device="0xa2dc")], domain=6),
        ],
        GRACE,
    ),
    """
    X    NODE SYS  SYS    NODE PXB  SYS  SYS  NODE
    NODE X    SYS  SYS    PXB  NODE SYS  SYS  NODE
    SYS  SYS  X    NODE   SYS  SYS  NODE PXB  SYS
    SYS  SYS  NODE X      SYS  SYS  PXB  NODE SYS
    """,
)
# Eight ConnectX-8, each with a GPU behind its own switch, on x86 (DeepEP issue 590).
HGX_B300 = Known(
    Machine([HostBridge(row // 4, [[connectx_8(f"mlx5_{row}"), [GPU]]]) for row in range(8)]),
    """
    X    NODE NODE NODE SYS  SYS  SYS  SYS    PXB  NODE NODE NODE SYS  SYS  SYS  SYS
    NODE X    NODE NODE SYS  SYS  SYS  SYS    NODE PXB  NODE NODE SYS  SYS  SYS  SYS
    NODE NODE X    NODE SYS  SYS  SYS  SYS    NODE NODE PXB  NODE SYS  SYS  SYS  SYS
    NODE NODE NODE X    SYS  SYS  SYS  SYS    NODE NODE NODE PXB  SYS  SYS  SYS  SYS
    SYS  SYS  SYS  SYS  X    NODE NODE NODE   SYS  SYS  SYS  SYS  PXB  NODE NODE NODE
    SYS  SYS  SYS  SYS  NODE X    NODE NODE   SYS  SYS  SYS  SYS  NODE PXB  NODE NODE
    SYS  SYS  SYS  SYS  NODE NODE X    NODE   SYS  SYS  SYS  SYS  NODE NODE PXB  NODE
    SYS  SYS  SYS  SYS  NODE NODE NODE X      SYS  SYS  SYS  SYS  NODE NODE NODE PXB
    """,
)
GH200 = Known(
    Machine(
        [HostBridge(0, [nic("mlx5_0")], domain=0), HostBridge(0, [GPU], domain=9)],
        GRACE,
        sockets=1,
    ),
    "X NODE",
)
# NUMA nodes 0 and 8; two GPUs below one switch of each socket. nvidia-smi shows the NVLinks between them instead.
AC922 = Known(
    Machine(
        [
            HostBridge(0, [replace(nic("mlx5_0"), functions=(nic("mlx5_1"),))], domain=3),
            HostBridge(0, [[GPU, GPU]], domain=4),
            HostBridge(8, [replace(nic("mlx5_2"), functions=(nic("mlx5_3"),))], domain=0x33),
            HostBridge(8, [[GPU, GPU]], domain=0x35),
        ],
        POWER9,
    ),
    """
    X   PIX SYS SYS   NODE NODE SYS  SYS
    PIX X   SYS SYS   NODE NODE SYS  SYS
    SYS SYS X   PIX   SYS  SYS  NODE NODE
    SYS SYS PIX X     SYS  SYS  NODE NODE
    """,
)
# A switch below another, as in boxes of eight PCIe cards. Whether its ports redirect peers to the root (ACS) stands in
# the configuration space that only root may read; NVML's P2P status tells what comes of it.
CASCADE = Known(
    Machine(
        [
            HostBridge(0, [[[GPU, GPU], [GPU, GPU, nic("mlx5_0")]]]),
            HostBridge(0, [GPU], bus=0x40),
            HostBridge(1, [[GPU, nic("mlx5_1")], GPU], bus=0x80),
        ]
    ),
    """
    X    PIX  PXB  PXB  NODE SYS  SYS    PXB  SYS
    PIX  X    PXB  PXB  NODE SYS  SYS    PXB  SYS
    PXB  PXB  X    PIX  NODE SYS  SYS    PIX  SYS
    PXB  PXB  PIX  X    NODE SYS  SYS    PIX  SYS
    NODE NODE NODE NODE X    SYS  SYS    NODE SYS
    SYS  SYS  SYS  SYS  SYS  X    PHB    SYS  PIX
    SYS  SYS  SYS  SYS  SYS  PHB  X      SYS  PHB
    """,
)
# Hyper-V gives every device a PCI domain and a root bus of its own. By its layout, not seen: the words to the NICs.
AZURE = Known(
    Machine(
        [
            HostBridge(number // 2, [GPU], 1 + number, is_flat=True, above=f"LNXSYSTM:00/VMBUS:00/{number}-gpu")
            for number in range(4)
        ]
        + [
            HostBridge(number // 2, [nic(f"mlx5_{number}", device=VIRTUAL_FUNCTION)], 0x101 + number, is_flat=True)
            for number in range(4)
        ],
        GUEST,
        files={
            "sys/class/dmi/id/sys_vendor": "Microsoft Corporation\n",
            "sys/class/dmi/id/product_name": "Virtual Machine\n",
        },
    ),
    """
    X    NODE SYS  SYS    NODE NODE SYS  SYS
    NODE X    SYS  SYS    NODE NODE SYS  SYS
    SYS  SYS  X    NODE   SYS  SYS  NODE NODE
    SYS  SYS  NODE X      SYS  SYS  NODE NODE
    """,
)
EFA_PORT = Port("Unknown", "100 Gb/sec (4X EDR)")


def efa(number: int) -> Device:
    """An Elastic Fabric Adapter; nvidia-smi prints none of them."""
    rdma = Rdma(f"rdmap{number}s0", (EFA_PORT,), "7: unspecified", "efa", board_id=None)
    return Device("0x1d0f", "0xefa1", "0x020000", rdma)


# Four adapters beside each of eight GPUs. By its layout, not printed: nvidia-smi shows no EFA.
P5 = Known(
    Machine(
        [HostBridge(gpu // 4, [[*(efa(4 * gpu + each) for each in range(4)), GPU]]) for gpu in range(8)],
        AMD.replace("fpu", "fpu hypervisor"),
        files={"sys/class/dmi/id/sys_vendor": "Amazon EC2\n", "sys/class/dmi/id/product_name": "p5.48xlarge\n"},
    ),
    "\n".join(
        " ".join(
            ["X" if a == b else "NODE" if a // 4 == b // 4 else "SYS" for b in range(8)]
            + ["PIX" if a == b // 4 else "NODE" if a // 4 == b // 16 else "SYS" for b in range(32)]
        )
        for a in range(8)
    ),
)
# Virtual functions with RoCE below the switches that the hypervisor shows. Not seen: a tree as some clouds show one.
GCP = Known(
    Machine(
        [HostBridge(gpu, [[GPU, nic(f"mlx5_{gpu}", (ROCE,), device=VIRTUAL_FUNCTION)]]) for gpu in range(2)],
        GUEST,
        files={
            "sys/class/dmi/id/sys_vendor": "Google\n",
            "sys/class/dmi/id/product_name": "Google Compute Engine\n",
        },
    ),
    """
    X   SYS   PIX SYS
    SYS X     SYS PIX
    """,
)
# The ConnectX-7 that manages its switches stands below a root port, with four functions that look like NICs.
HGX_B200 = Known(
    Machine(
        [
            HostBridge(0, [[GPU, nic("mlx5_0")]]),
            HostBridge(
                1,
                [
                    replace(
                        nic("mlx5_7", board_id="MT_0000001121", lanes=2),
                        functions=(
                            nic("mlx5_8", board_id="MT_0000001121", lanes=2),
                            nic("mlx5_9", board_id="NVD0000000079", lanes=2),
                            nic("mlx5_10", board_id="of a board to come", lanes=2),
                        ),
                    )
                ],
            ),
            HostBridge(1, [[GPU, nic("mlx5_2")]]),
        ]
    ),
    """
    X   SYS   PIX SYS
    SYS X     SYS PIX
    """,
)
KNOWN = {
    "DGX H100": DGX_H100,
    "DGX A100 with four NUMA nodes per socket": DGX_A100_NPS4,
    "Polaris": POLARIS,
    "GB200 tray": GB200_TRAY,
    "GB300 tray": GB300_TRAY,
    "HGX B300": HGX_B300,
    "GH200": GH200,
    "AC922": AC922,
    "cascaded switches": CASCADE,
    "Azure ND": AZURE,
    "AWS p5": P5,
    "GCP": GCP,
    "HGX B200": HGX_B200,
}
