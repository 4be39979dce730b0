"""What the NVLinks of one machine join, concluded from the readings of each link. Pure.

docs/decisions/0005-agent-sources.md gives the reasons for each rule here.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from itertools import combinations
from typing import TypeVar

from closeknit.agent.discovery.readings import pci
from closeknit.agent.discovery.readings.plausible import possible, possible_if_whole
from closeknit.agent.discovery.readings.readings import (
    DOWN_STATES,
    UP_STATES,
    FabricReading,
    GpuReading,
    LinkReading,
    PairReading,
    PciReading,
)
from closeknit.api.nodetopology import Nvlink, NvlinkDomain, NvlinkPair
from closeknit.api.nodetopology_status import LinkDown
from closeknit.machine.products import product_of

# nvmlNvlinkVersion_t -> generation: 1.0, 2.0, 2.2, 3.0, 3.1, 4.0, 5.0, 6.0
GENERATIONS: Mapping[int, int] = {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 5, 8: 6}
REMOTE_GPU, REMOTE_CPU, REMOTE_SWITCH = 0, 1, 2  # nvmlIntNvLinkDeviceType_t; CPU is POWER9's NPU
P2P_OK = 0  # nvmlGpuP2PStatus_t
FABRIC_COMPLETED = 3
NVML_SUCCESS = 0

_T = TypeVar("_T")


class LinkEnd(Enum):
    """Where a link ends that does not end in a GPU of this machine."""

    SWITCH = "switch"
    CPU = "cpu"
    OUTSIDE = "outside"  # a GPU that this virtual machine was not given
    UNKNOWN = "unknown"  # the link is down and does not say


def nvlink(
    gpus: Sequence[GpuReading],
    devices: Iterable[PciReading],
    lost: Collection[int] = (),
    *,
    has_switches: bool = False,
) -> tuple[Nvlink, list[LinkDown]]:
    """The NVLinks that this machine has between these GPUs, in their order, and which of them are down.

    `linksPerGPU` (into switches), `cpuLinksPerGPU` and `pairs` (direct) count the links that are down, too, where it is
    known where they lead: placement subtracts them. `lost`: indexes of GPUs that do not answer, maybe more than `gpus`.
    `has_switches`: something else than a link that is up says that there are NVSwitches.
    """
    ends = Ends(gpus, devices)
    up = [[ends.of(link) for link in _up(gpu)] for gpu in gpus]
    switched = any(ends.of(link) is LinkEnd.SWITCH for gpu in gpus for link in built(gpu))
    switched = switched or (has_switches and is_cut_off(gpus) and not any(map(built, gpus)))
    down = [_down(gpu, gpus, switched) for gpu in gpus]
    if lost and not switched:  # it explains the links that no longer say where they led, and is reported itself
        down = [[link for link in links if ends.of(link) is not LinkEnd.UNKNOWN] for links in down]
    gone = {position for position, gpu in enumerate(gpus) if gpu.index in lost}
    switch_links = [found.count(LinkEnd.SWITCH) + len(links) for found, links in zip(up, down, strict=True)]
    led = [[ends.of(link) for link in links] for links in down]
    cpu_links = [
        found.count(LinkEnd.CPU) + gone_too.count(LinkEnd.CPU) for found, gone_too in zip(up, led, strict=True)
    ]
    return (
        possible(
            Nvlink,
            generation=_most_common(generation(gpu) for gpu in gpus),
            link_bandwidth_gb_s=_most_common(link_bandwidth_gb_s(gpu) for gpu in gpus),
            switched=switched,
            links_per_gpu=switch_links if switched else [],
            pairs=[] if switched else _pairs(gpus, up, led),
            cpu_links_per_gpu=cpu_links if any(cpu_links) else [],
            domain=_domain(gpus),
        ),
        [
            LinkDown(gpu=gpu.index, link=link.link)
            for gpu, links in zip(gpus, down, strict=True)
            for link in links
            if gpu.index not in lost and ends.of(link) not in gone
        ],
    )


def generation(gpu: GpuReading) -> int | None:
    """NVLink generation of the GPU's links; None without a link that is up, or was."""
    return max((found for link in built(gpu) if (found := GENERATIONS.get(link.version or 0))), default=None)


def link_bandwidth_gb_s(gpu: GpuReading) -> float | None:
    """Bandwidth of one of the GPU's links in GB/s per direction; None without a link that is up, or was."""
    return max((link.speed_mb_s / 1000 for link in built(gpu) if link.speed_mb_s), default=None)


def fabric_ready(gpu: GpuReading, pairs: Iterable[PairReading]) -> bool | None:
    """Whether a GPU with links into switches can use them; None if unknown.

    Hopper and later say it themselves. An A100 without a fabric manager is seen by having no NVLink peer at all.
    """
    if gpu.fabric is not None and gpu.fabric.state != 0:
        return is_completed(gpu.fabric)
    mine = [pair.p2p_nvlink for pair in pairs if gpu.index in (pair.a, pair.b) and pair.p2p_nvlink is not None]
    return None if not mine else P2P_OK in mine


def is_cut_off(gpus: Iterable[GpuReading]) -> bool:
    """Whether there are NVLinks and each of them is known to be down; those of a GPU in MIG mode do not count."""
    states = {link.state for gpu in gpus if not has_mig(gpu) for link in gpu.links if link.p2p is not False}
    return bool(states) and states <= set(DOWN_STATES)


def has_mig(gpu: GpuReading) -> bool:
    """Whether the GPU is in MIG mode, in which its NVLinks may be off."""
    return gpu.mig_mode is not None and bool(gpu.mig_mode[0])


class Ends:
    """Where the links of these GPUs end: at the position of a GPU, or elsewhere."""

    def __init__(self, gpus: Sequence[GpuReading], devices: Iterable[PciReading]) -> None:
        addresses = ((position, pci.address(gpu.bus_id)) for position, gpu in enumerate(gpus))
        self._positions = {address: position for position, address in addresses if address is not None}
        self._classes = {device.address: device.device_class for device in devices}

    def of(self, link: LinkReading) -> LinkEnd | int:
        """Where a link ends."""
        remote = pci.address(link.remote_bus_id)
        if link.remote_type == REMOTE_CPU:
            return LinkEnd.CPU
        if link.remote_type == REMOTE_SWITCH:
            return LinkEnd.SWITCH
        if link.state in DOWN_STATES and remote is None and not link.was_up:
            return LinkEnd.UNKNOWN
        if link.remote_bus_id is None and link.errors.get("remote_bus_id", "NotText") != "NotText":
            return LinkEnd.UNKNOWN  # its remote end is unknown, which is not the same as a hidden switch
        if remote is None:  # virtual machines and NVL72 trays hide their switches
            return LinkEnd.SWITCH
        if remote in self._positions:
            return self._positions[remote]
        if link.remote_type == REMOTE_GPU:
            return LinkEnd.OUTSIDE
        # Of unknown type and not a GPU of ours: NCCL, too, takes a device that it cannot see for a switch.
        return LinkEnd.SWITCH if self._classes.get(remote) in (None, pci.NVSWITCH_CLASS) else LinkEnd.OUTSIDE


def _down(gpu: GpuReading, gpus: Sequence[GpuReading], switched: bool) -> list[LinkReading]:
    """The GPU's links that should be up and are not.

    A link that is inactive may just not be wired (a card without its bridge, an export model with fewer links). It is
    down if it was up before, or if the same link is up on another GPU of this product and, without switches, this GPU
    has others up. Into switches all links of a product lead that has no more of them than NVML counts, or all, where
    none is up anywhere.
    """
    wired = {link.link for other in gpus if other.name == gpu.name for link in _up(other)}
    if not switched and not _up(gpu):
        wired = set()
    if switched and not has_mig(gpu):
        known, own = product_of(gpu.name), {link.link for link in gpu.links if link.p2p}
        if (known is not None and known.links == len(own)) or is_cut_off(gpus):
            wired |= own
    return [link for link in gpu.links if link.state in DOWN_STATES and (link.was_up or link.link in wired)]


def _pairs(
    gpus: Sequence[GpuReading], up: Sequence[Sequence[LinkEnd | int]], down: Sequence[Sequence[LinkEnd | int]]
) -> list[NvlinkPair]:
    """Direct links of each two GPUs: as many as both see up, and those that are down and surely theirs.

    A link that is down need not say where it led. If only two GPUs have such links, and as many, they are the two ends.
    """
    unknown = {position: ends.count(LinkEnd.UNKNOWN) for position, ends in enumerate(down) if LinkEnd.UNKNOWN in ends}
    torn = set(unknown) if len(unknown) == 2 and len(set(unknown.values())) == 1 else set()
    pairs = []
    for a, b in combinations(range(len(gpus)), 2):
        links = min(up[a].count(b) + down[a].count(b), up[b].count(a) + down[b].count(a))
        links += unknown[a] if {a, b} == torn else 0
        if links:
            low, high = sorted((gpus[a].index, gpus[b].index))
            pairs.append(NvlinkPair(a=low, b=high, links=links))
    return pairs


def _domain(gpus: Sequence[GpuReading]) -> NvlinkDomain | None:
    """The multi-node domain that all GPUs with a fabric agree on; an all-zero uuid means that there is none to join."""
    fabrics = [gpu.fabric for gpu in gpus if gpu.fabric is not None and is_completed(gpu.fabric)]
    domains = {(fabric.cluster_uuid, fabric.clique_id) for fabric in fabrics if fabric.cluster_uuid.strip("0")}
    if len(domains) != 1 or any(not fabric.cluster_uuid.strip("0") for fabric in fabrics):
        return None
    ((uuid, clique),) = domains
    return possible_if_whole(NvlinkDomain, cluster_uuid=dashed(uuid), clique_id=clique)


def dashed(digits: str) -> str:
    """The 32 hexadecimal digits of a uuid as uuids are written."""
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def is_completed(fabric: FabricReading) -> bool:
    """Whether the GPU has been given its place in the NVLink fabric."""
    return fabric.state == FABRIC_COMPLETED and fabric.status == NVML_SUCCESS


def _up(gpu: GpuReading) -> list[LinkReading]:
    return [link for link in gpu.links if link.p2p and link.state in UP_STATES]


def built(gpu: GpuReading) -> list[LinkReading]:
    """The links that the GPU surely has: up, or known to have been."""
    return [link for link in gpu.links if link.p2p and (link.state in UP_STATES or link.was_up)]


def _most_common(values: Iterable[_T | None]) -> _T | None:
    """The value that most GPUs have, the first of equals; None where none has one."""
    counted = Counter(value for value in values if value is not None)
    return counted.most_common(1)[0][0] if counted else None
