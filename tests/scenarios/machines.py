"""Machines for tests, as an agent would publish them.

Real machines are described once, by the agent's profiles: what is here is what discovery makes of their readings.
Where a test needs a machine that nobody has seen, it is a profile with something changed, or `spec`, and says so.
"""

from collections.abc import Callable, Sequence

import msgspec

from closeknit.agent.discovery.simulated.profile import GPU, GpuModel, HostBridge, NicModel, NvlinkModel, Profile
from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.discovery.topology import discover
from closeknit.agent.sources.simulated import load_profile
from closeknit.api.nodetopology import Method, NodeTopologySpec

INTEL_2017 = "Intel(R) Xeon(R) Platinum 8168 CPU @ 2.70GHz"
INTEL_2023 = "Intel(R) Xeon(R) Platinum 8480C"
INTEL_2024 = "Intel(R) Xeon(R) Platinum 8580"
AMD_2021 = "AMD EPYC 7763 64-Core Processor"


def published(profile: Profile, tag: str) -> NodeTopologySpec:
    """What an agent publishes of a machine of this profile. Its uuids are GPU-<tag>-<index>, to be read by people."""
    wire = discover(readings_of(profile, tag), Method.SIMULATED).spec.wire()
    gpus = [{**gpu, "uuid": f"GPU-{tag}-{gpu['index']}"} for gpu in wire["gpus"]]
    return NodeTopologySpec.parse({**wire, "gpus": gpus})


def dgx1v(tag: str = "0") -> NodeTopologySpec:
    """Eight V100 of 16 GB in a hybrid cube mesh; two GPUs and one 100 Gb/s NIC on each PCIe switch.

    The profile has the GPUs of 32 GB, which came later in the same machine.
    """
    profile = load_profile("dgx1-v100")
    gpu = msgspec.structs.replace(profile.gpu, name="Tesla V100-SXM2-16GB", memory_mib=16384)
    return published(msgspec.structs.replace(profile, gpu=gpu), tag)


def dgx1v_link_down(tag: str = "0") -> NodeTopologySpec:
    """The same with both links between GPU 0 and GPU 3 down."""
    wire = dgx1v(tag).wire()
    pairs = [pair for pair in wire["nvlink"]["pairs"] if (pair["a"], pair["b"]) != (0, 3)]
    return NodeTopologySpec.parse({**wire, "nvlink": {**wire["nvlink"], "pairs": pairs}})


def dgx1p(tag: str = "0") -> NodeTopologySpec:
    """Eight P100 in a hybrid cube mesh of single links."""
    return published(load_profile("dgx1-p100"), tag)


def dgx2(tag: str = "0") -> NodeTopologySpec:
    """Sixteen V100 behind NVSwitches."""
    return published(load_profile("dgx2"), tag)


def hgx_h200(tag: str = "0") -> NodeTopologySpec:
    """Eight H200 behind NVSwitches, a 400 Gb/s NIC beside each GPU."""
    return published(load_profile("hgx-h200"), tag)


def hgx_a100(tag: str = "0") -> NodeTopologySpec:
    """Artificial: the HGX H200 with eight A100 and NICs of 200 Gb/s, so that each GPU more is one NIC more.

    A real DGX A100 (profile hgx-a100-8) shares two NICs among two GPUs, and its eight have gaps in a ring over PCIe.
    """
    h200 = load_profile("hgx-h200")
    return published(
        msgspec.structs.replace(
            h200,
            name="",
            gpu=GpuModel("NVIDIA A100-SXM4-80GB", 7, (8, 0), 81920, 4),
            nvlink=NvlinkModel(version=4, speed_mb_s=25000, switches=6, links_per_gpu=12),
            nic=NicModel("InfiniBand", "200 Gb/sec (4X HDR)"),
        ),
        tag,
    )


def a100x4(tag: str = "0") -> NodeTopologySpec:
    """Four A100, four links between each two, no switch, each on a NUMA node of its own."""
    return published(load_profile("hgx-a100-4"), tag)


def a100x4_backwards(tag: str = "0") -> NodeTopologySpec:
    """Artificial: the same with the indexes against the bus order."""
    wire = a100x4(tag).wire()
    addresses = [gpu["pciAddress"] for gpu in reversed(wire["gpus"])]
    gpus = [{**gpu, "pciAddress": address} for gpu, address in zip(wire["gpus"], addresses, strict=True)]
    return NodeTopologySpec.parse({**wire, "gpus": gpus})


def gb200_tray(tag: str = "0") -> NodeTopologySpec:
    """A tray of four GPUs of a rack-wide NVLink domain, with four NICs of which no NUMA node is told."""
    return published(load_profile("gb200-tray"), tag)


def pairs8(tag: str = "0") -> NodeTopologySpec:
    """Eight RTX A6000 of which each two share an NVLink bridge of four links; four on each socket."""
    return published(load_profile("pcie-bridges-8"), tag)


def pcie_only(tag: str = "0") -> NodeTopologySpec:
    """Artificial: half of the eight L40S behind PCIe switches, two on each socket, and no NIC."""
    bridges = [HostBridge(numa=socket, ports=[[GPU, GPU]]) for socket in (0, 1)]
    return published(msgspec.structs.replace(load_profile("pcie-8"), host_bridges=bridges, nic=None), tag)


MACHINES: dict[str, Callable[[str], NodeTopologySpec]] = {
    "dgx-1v": dgx1v,
    "dgx-1v-link-down": dgx1v_link_down,
    "dgx-1p": dgx1p,
    "dgx-2": dgx2,
    "hgx-h200": hgx_h200,
    "hgx-a100": hgx_a100,
    "a100x4": a100x4,
    "a100x4-backwards": a100x4_backwards,
    "gb200-tray": gb200_tray,
    "pairs8": pairs8,
    "pcie-only": pcie_only,
}


def mesh(text: str) -> list[dict[str, int]]:
    """`0-1:2` is two links between GPU 0 and GPU 1."""
    pairs = []
    for word in text.split():
        ends, links = word.split(":")
        a, b = ends.split("-")
        pairs.append({"a": int(a), "b": int(b), "links": int(links)})
    return pairs


def tree(sockets: Sequence[int], switches: Sequence[int], *, near: str = "PHB") -> list[str]:
    """PCIe levels of GPUs of which each has a socket and a PCIe switch (equal number, equal switch)."""

    def word(a: int, b: int) -> str:
        if a == b:
            return "X"
        if switches[a] == switches[b]:
            return "PIX"
        return near if sockets[a] == sockets[b] else "SYS"

    return [" ".join(word(a, b) for b in range(len(sockets))) for a in range(len(sockets))]


def spec(
    *,
    count: int,
    product: str,
    capability: str,
    memory_gib: int,
    sockets: Sequence[int] | None = None,
    levels: list[str] | None = None,
    pairs: str = "",
    switch_links: int = 0,
    pcie: int,
    cpu: str,
    nics: Sequence[tuple[Sequence[str], int]] = (),
    addresses: Sequence[str] | None = None,
    tag: str = "0",
) -> NodeTopologySpec:
    """A machine that nobody has seen; `nics` holds, for each InfiniBand NIC, its levels to the GPUs and its Gb/s."""
    sockets = sockets or [0] * count
    return NodeTopologySpec.parse(
        {
            "source": {"method": "Simulated"},
            "gpus": [
                {
                    "index": index,
                    "uuid": f"GPU-{tag}-{index}",
                    "pciAddress": addresses[index] if addresses else f"0000:{16 + 8 * index:02x}:00.0",
                    "product": product,
                    "computeCapability": capability,
                    "memoryBytes": memory_gib << 30,
                    "numaNode": sockets[index],
                    "pcieGeneration": pcie,
                    "pcieWidth": 16,
                }
                for index in range(count)
            ],
            "nvlink": {
                "switched": switch_links > 0,
                "linksPerGPU": [switch_links] * count if switch_links else [],
                "pairs": mesh(pairs),
            },
            "pcie": {"levels": levels or [], "cpuModel": cpu},
            "nics": [
                {
                    "name": f"mlx5_{number}",
                    "transport": "InfiniBand",
                    "state": "Active",
                    "rateGbps": rate,
                    "gpuLevels": list(words),
                }
                for number, (words, rate) in enumerate(nics)
            ],
        }
    )
