"""Machines for tests, as an agent would publish them: shapes of real servers from NVIDIA's documents.

These are inventions after the data sheets (link matrices, PCIe trees, NIC places), not recordings.
"""

from collections.abc import Callable, Sequence

from closeknit.api.nodetopology import NodeTopologySpec

DGX1V_PAIRS = "0-1:1 0-2:1 0-3:2 0-4:2 1-2:2 1-3:1 1-5:2 2-3:2 2-6:1 3-7:1 4-5:1 4-6:1 4-7:2 5-6:2 5-7:1 6-7:2"
INTEL_2017 = "Intel(R) Xeon(R) Platinum 8168 CPU @ 2.70GHz"
INTEL_2023 = "Intel(R) Xeon(R) Platinum 8480C"
INTEL_2024 = "Intel(R) Xeon(R) Platinum 8580"
AMD_2021 = "AMD EPYC 7763 64-Core Processor"


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
    """A NodeTopology; `nics` holds, for each InfiniBand NIC, its levels to the GPUs and its rate in Gb/s."""
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


def _beside(levels: list[str], gpus: Sequence[int], level: str = "PIX") -> list[str]:
    """Levels of a NIC on the PCIe switch of `gpus`: theirs is `level`, the others see it as they see the first."""
    row = levels[gpus[0]].split()
    return [level if index in gpus else row[index] for index in range(len(row))]


def dgx1(*, tag: str = "0", volta: bool = True, nics: bool = True) -> NodeTopologySpec:
    """Eight V100 or P100 in a hybrid cube mesh; two GPUs and one 100 Gb/s NIC on each PCIe switch."""
    sockets = [0, 0, 0, 0, 1, 1, 1, 1]
    levels = tree(sockets, [0, 0, 1, 1, 2, 2, 3, 3])
    pairs = DGX1V_PAIRS if volta else " ".join(word[:-1] + "1" for word in DGX1V_PAIRS.split())
    return spec(
        count=8,
        product="Tesla-V100-SXM2-16GB" if volta else "Tesla-P100-SXM2-16GB",
        capability="7.0" if volta else "6.0",
        memory_gib=16,
        sockets=sockets,
        levels=levels,
        pairs=pairs,
        pcie=3,
        cpu=INTEL_2017,
        nics=[(_beside(levels, (first, first + 1)), 100) for first in (0, 2, 4, 6)] if nics else (),
        tag=tag,
    )


def dgx1v(tag: str = "0") -> NodeTopologySpec:
    return dgx1(tag=tag)


def dgx1p(tag: str = "0") -> NodeTopologySpec:
    return dgx1(tag=tag, volta=False)


def dgx2(tag: str = "0") -> NodeTopologySpec:
    """Sixteen V100 behind NVSwitches."""
    sockets = [0] * 8 + [1] * 8
    return spec(
        count=16,
        product="Tesla-V100-SXM3-32GB",
        capability="7.0",
        memory_gib=32,
        sockets=sockets,
        levels=tree(sockets, [index // 2 for index in range(16)]),
        switch_links=6,
        pcie=3,
        cpu=INTEL_2017,
        tag=tag,
    )


def _hgx(
    product: str, capability: str, memory_gib: int, links: int, tag: str, pcie: int, rate: int
) -> NodeTopologySpec:
    sockets = [0, 0, 0, 0, 1, 1, 1, 1]
    levels = tree(sockets, range(8), near="NODE")
    return spec(
        count=8,
        product=product,
        capability=capability,
        memory_gib=memory_gib,
        sockets=sockets,
        levels=levels,
        switch_links=links,
        pcie=pcie,
        cpu=INTEL_2023,
        nics=[(_beside(levels, (index,)), rate) for index in range(8)],
        tag=tag,
    )


def hgx_h200(tag: str = "0") -> NodeTopologySpec:
    """Eight H200 behind NVSwitches, a 400 Gb/s NIC beside each GPU."""
    return _hgx("NVIDIA-H200", "9.0", 140, 18, tag, 5, 400)


def hgx_a100(tag: str = "0") -> NodeTopologySpec:
    """Eight A100 behind NVSwitches, a 200 Gb/s NIC beside each GPU."""
    return _hgx("NVIDIA-A100-SXM4-80GB", "8.0", 80, 12, tag, 4, 200)


def a100x4(tag: str = "0") -> NodeTopologySpec:
    """Four A100, four links between each two, no switch, one socket."""
    return spec(
        count=4,
        product="NVIDIA-A100-SXM4-40GB",
        capability="8.0",
        memory_gib=40,
        levels=tree([0] * 4, range(4)),
        pairs=" ".join(f"{a}-{b}:4" for a in range(4) for b in range(a + 1, 4)),
        pcie=4,
        cpu=AMD_2021,
        tag=tag,
    )


def a100x4_backwards(tag: str = "0") -> NodeTopologySpec:
    """The same with the indexes against the bus order, as on Polaris."""
    wire = a100x4(tag).wire()
    backwards = [{**gpu, "pciAddress": f"0000:{0x40 - 16 * gpu['index']:02x}:00.0"} for gpu in wire["gpus"]]
    return NodeTopologySpec.parse({**wire, "gpus": backwards})


def gb200_tray(tag: str = "0") -> NodeTopologySpec:
    """Four B200 of a rack-wide NVLink domain, two beside each Grace CPU."""
    sockets = [0, 0, 1, 1]
    levels = tree(sockets, range(4), near="NODE")
    return spec(
        count=4,
        product="NVIDIA-GB200",
        capability="10.0",
        memory_gib=184,
        sockets=sockets,
        levels=levels,
        switch_links=18,
        pcie=5,
        cpu="Neoverse-V2",
        nics=[(_beside(levels, (index,), "NODE"), 400) for index in range(4)],
        tag=tag,
    )


def pairs8(tag: str = "0") -> NodeTopologySpec:
    """Eight A40 of which each two share an NVLink bridge of four links; four on each socket."""
    sockets = [0, 0, 0, 0, 1, 1, 1, 1]
    return spec(
        count=8,
        product="NVIDIA-A40",
        capability="8.6",
        memory_gib=48,
        sockets=sockets,
        levels=tree(sockets, range(8), near="NODE"),
        pairs="0-1:4 2-3:4 4-5:4 6-7:4",
        pcie=4,
        cpu=AMD_2021,
        tag=tag,
    )


def pcie_only(tag: str = "0") -> NodeTopologySpec:
    """Four L40S without NVLink: two PCIe switches with two GPUs each, on one socket each."""
    return spec(
        count=4,
        product="NVIDIA-L40S",
        capability="8.9",
        memory_gib=48,
        sockets=[0, 0, 1, 1],
        levels=tree([0, 0, 1, 1], [0, 0, 1, 1]),
        pcie=4,
        cpu=INTEL_2023,
        tag=tag,
    )


MACHINES: dict[str, Callable[[str], NodeTopologySpec]] = {
    "dgx-1v": dgx1v,
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
